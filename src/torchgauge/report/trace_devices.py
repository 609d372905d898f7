"""Where the time of devices went: of one rank by stream, and of all ranks beside each other."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.model.breakdown import Breakdown
from torchgauge.model.trace import Job, RankTrace, Trace
from torchgauge.report.sheet import Sheet

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
        busiest = sorted(device.streams, key=lambda each: -each.breakdown.busy)[:STREAMS]
        for stream in device.streams if len(device.streams) > 1 else ():
            if stream in busiest:
                of = "unknown" if stream.stream is None else f"{stream.stream}"
                rows.append((f"  stream {of}", "", *_shares(stream.breakdown)))
        if more := len(device.streams) - len(busiest):
            rows.append((f"  and {more:,} less busy", *[""] * (1 + len(_PARTS))))
    note = (
        "comm. and copies: beside no computation. Idle, by what it waited for: the host, the "
        "device's own pause of 5 µs at most, other."
    )
    return Sheet(
        "Where the time of devices went", "measured", ("window", *_PARTS), rows,
        strong=frozenset(strong), notes=(note,),
    )  # fmt: skip


def _shares(one: Breakdown) -> Iterator[str]:
    idle = one.idle
    for part in (
        one.compute,
        one.exposed_communication,
        one.exposed_copies,
        idle.total,
        idle.host_wait,
        idle.kernel_wait,
        idle.other + idle.outside,
    ):
        yield units.percent(part / one.window) if part and one.window else "–"


def ranks(trace: Trace, most: int = RANKS) -> Sheet:
    """Return the ranks that the others wait for most, and what all say together."""
    waits = {one.rank: one for one in trace.job.waits} if trace.job is not None else {}
    late = trace.job.straggler if trace.job is not None else None

    def waited_for(one: RankTrace) -> float:
        wait = waits.get(one.rank if one.rank is not None else -1)
        return wait.waited_for if wait is not None else 0.0

    last = {id(one) for one in sorted(trace.ranks, key=waited_for, reverse=True)[:most]}
    shown = [one for one in trace.ranks if id(one) in last]
    rows = []
    for one in shown:
        whole = one.times[0].breakdown if one.times else None
        shares = list(_shares(whole)) if whole is not None else ["–"] * len(_PARTS)
        wait = waits.get(one.rank if one.rank is not None else -1)
        times = (wait.waits, wait.waited_for) if wait is not None else (None, None)
        rows.append(
            (
                f"{one.rank}",
                units.time(one.window, 3),
                *(shares[0], shares[1], shares[3]),
                *("–" if time is None else units.time(time, 3) for time in times),
            )
        )
    more = len(trace.ranks) - len(shown)
    others = "that are waited for no longer" if waits else "others"
    left_out = [f"and {more:,} {others}"] if more else []
    return Sheet(
        "Ranks", "measured", ("window", "compute", "comm.", "idle", "waits", "waited for"), rows,
        first="rank",
        strong=frozenset(at for at, one in enumerate(shown) if one.rank == late),
        notes=(*left_out, *side_by_side(trace.job)),
    )  # fmt: skip


def side_by_side(job: Job | None) -> Iterator[str]:
    """Say how many collectives were put beside each other, and which were not."""
    if job is None:
        return
    calls = f"{job.calls:,} collective{'s' * (job.calls != 1)}"
    yield f"{calls} put side by side, each on the ranks of its group."
    if job.unmatched:
        kinds = f"{job.unmatched} kind{'s are' if job.unmatched > 1 else ' is'}"
        yield f"{kinds} not equally often on all ranks: those that differ are left out."
