"""Tables of device time: one rank's by stream, and all ranks side by side."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.records.trace.breakdown import Breakdown
from torchgauge.records.trace.trace import Job, RankTrace, Trace
from torchgauge.report.content.sheet import Sheet

STREAMS = 16
RANKS = 32
_PARTS = ("compute", "comm.", "copies", "idle", "host", "device", "other")


def devices(rank: RankTrace) -> Sheet:
    """Return the shares of each device's window, and of its busiest streams."""
    rows: list[tuple[str, ...]] = []
    strong = set()
    for device in rank.times:
        window = units.time(device.breakdown.window, 3)
        strong.add(len(rows))
        rows.append((rank.called(device.device), window, *_shares(device.breakdown)))
        busiest = sorted(device.streams, key=lambda stream: -stream.breakdown.busy)[:STREAMS]
        for stream in device.streams if len(device.streams) > 1 else ():
            if stream in busiest:
                number = "unknown" if stream.stream is None else f"{stream.stream}"
                rows.append((f"  stream {number}", "", *_shares(stream.breakdown)))
        if hidden_count := len(device.streams) - len(busiest):
            rows.append((f"  and {hidden_count:,} less busy", *[""] * (1 + len(_PARTS))))
    note = (
        "comm. and copies: beside no computation. Idle, by what it waited for: the host, the "
        "device's own pause of 5 µs at most, other."
    )
    return Sheet(
        "Where the time of devices went", "measured", ("window", *_PARTS), rows,
        strong=frozenset(strong), notes=(note,),
    )  # fmt: skip


def _shares(breakdown: Breakdown) -> Iterator[str]:
    idle = breakdown.idle
    for part in (
        breakdown.compute,
        breakdown.exposed_communication,
        breakdown.exposed_copies,
        idle.total,
        idle.host_wait,
        idle.kernel_wait,
        idle.other + idle.outside,
    ):
        yield units.percent(part / breakdown.window) if part and breakdown.window else "–"


def ranks(trace: Trace, max_ranks: int = RANKS) -> Sheet:
    """Return the ranks that the others wait for most, with the job's waits."""
    waits = {wait.rank: wait for wait in trace.job.waits} if trace.job is not None else {}
    late = trace.job.straggler if trace.job is not None else None

    def waited_for(rank: RankTrace) -> float:
        wait = waits.get(rank.rank if rank.rank is not None else -1)
        return wait.waited_for if wait is not None else 0.0

    last = {id(rank) for rank in sorted(trace.ranks, key=waited_for, reverse=True)[:max_ranks]}
    listed = [rank for rank in trace.ranks if id(rank) in last]
    rows = []
    for rank in listed:
        breakdown = rank.times[0].breakdown if rank.times else None
        shares = list(_shares(breakdown)) if breakdown is not None else ["–"] * len(_PARTS)
        wait = waits.get(rank.rank if rank.rank is not None else -1)
        times = (wait.waits, wait.waited_for) if wait is not None else (None, None)
        rows.append(
            (
                f"{rank.rank}",
                units.time(rank.window, 3),
                *(shares[0], shares[1], shares[3]),
                *("–" if time is None else units.time(time, 3) for time in times),
            )
        )
    hidden_count = len(trace.ranks) - len(listed)
    description = "that are waited for no longer" if waits else "others"
    left_out = [f"and {hidden_count:,} {description}"] if hidden_count else []
    return Sheet(
        "Ranks", "measured", ("window", "compute", "comm.", "idle", "waits", "waited for"), rows,
        first="rank",
        strong=frozenset(index for index, rank in enumerate(listed) if rank.rank == late),
        notes=(*left_out, *side_by_side(trace.job)),
    )  # fmt: skip


def side_by_side(job: Job | None) -> Iterator[str]:
    """Say how many collectives were matched across ranks, and which were not."""
    if job is None:
        return
    calls = f"{job.calls:,} collective{'s' * (job.calls != 1)}"
    yield f"{calls} put side by side, each on the ranks of its group."
    if job.unmatched:
        kinds = f"{job.unmatched} kind{'s are' if job.unmatched > 1 else ' is'}"
        yield f"{kinds} not equally often on all ranks: those that differ are left out."
