"""Tables of device time: one rank's by stream, and all ranks side by side."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator

from torchgauge.records.trace.breakdown import Breakdown
from torchgauge.records.trace.trace import Job, RankTrace, Trace
from torchgauge.report.content.document import Column, Row, Table, Value, cells

STREAMS = 16
RANKS = 32
EXCHANGING = 8  # that a terminal's line has room for
_RARE = ("comm.", "copies", "unknown", "outside")
_SECONDS = {
    "compute": "compute",
    "comm.": "exposed_communication",
    "copies": "exposed_copies",
    "idle": "idle.total",
    "host": "idle.host_wait",
    "device": "idle.kernel_wait",
    "other": "idle.other",
    "unknown": "idle.unknown",
    "outside": "idle.outside",
}


def _share(name: str) -> Callable[[Breakdown], float | None]:
    seconds = operator.attrgetter(name)
    return lambda part: seconds(part) / part.window if part.window and seconds(part) else None


PARTS = tuple(
    Column(title, None, "percent", _share(name), 1 if title == "device" else None, empty="–")
    for title, name in _SECONDS.items()
)
DEVICES = (Column("window", unit="time"), *PARTS)
_ALL_PARTS = ("compute", "comm.", "idle")
RANK_COLUMNS = (
    Column("window", unit="time"),
    *(part for part in PARTS if part.key in _ALL_PARTS),
    Column("waits", unit="time", empty="–"),
    Column("waited for", unit="time", empty="–"),
)
MFU = Column("MFU", unit="percent", empty="–")


def devices(rank: RankTrace) -> Table:
    """Return the shares of each device's window, and of its busiest streams."""
    rows: list[Row] = []
    for device in rank.times:
        values = {"window": device.breakdown.window, **cells(PARTS, device.breakdown)}
        rows.append(Row(rank.called(device.device), values, tone="strong"))
        busiest = sorted(device.streams, key=lambda stream: -stream.breakdown.busy)[:STREAMS]
        for stream in device.streams if len(device.streams) > 1 else ():
            if stream in busiest:
                number = "unknown" if stream.stream is None else f"{stream.stream}"
                rows.append(Row(f"stream {number}", cells(PARTS, stream.breakdown), 1))
        if hidden_count := len(device.streams) - len(busiest):
            blanks = dict.fromkeys((part.key for part in PARTS), "")
            rows.append(Row(f"and {hidden_count:,} less busy", blanks, 1))
    note = (
        "comm. and copies: exposed. Idle, by what it waited for: the host and its launch, the "
        "device's own pause of 5 µs at most, other."
    )
    filled_keys = {key for row in rows for key, value in row.cells.items() if value}
    columns = tuple(
        column for column in DEVICES if column.key in filled_keys or column.key not in _RARE
    )
    if "outside" in filled_keys:
        note += " Outside: before a stream's first piece of work and after its last."
    return Table(
        title="Where the time of devices went", how="measured", columns=columns, rows=rows,
        notes=(note,),
    )  # fmt: skip


def ranks(trace: Trace) -> Table:
    """Return the ranks that the others wait for most, with the job's waits."""
    waits = {wait.rank: wait for wait in trace.job.waits} if trace.job is not None else {}
    late = trace.job.lost_by_rank if trace.job is not None else {}

    def waited_for(rank: RankTrace) -> float:
        wait = waits.get(rank.rank if rank.rank is not None else -1)
        return wait.waited_for if wait is not None else 0.0

    last = {id(rank) for rank in sorted(trace.ranks, key=waited_for, reverse=True)[:RANKS]}
    rows = []
    for rank in trace.ranks:
        if id(rank) not in last:
            continue
        shares = cells(PARTS, rank.times[0].breakdown) if rank.times else {}
        window = rank.times[0].breakdown.window if rank.times else rank.window
        values: dict[str, Value] = {"window": window}
        values |= {name: share for name, share in shares.items() if name in _ALL_PARTS}
        wait = waits.get(rank.rank if rank.rank is not None else -1)
        if wait is not None:
            values |= {"waits": wait.waits, "waited for": wait.waited_for}
        if rank.utilization is not None:
            values["MFU"] = rank.utilization.mfu
        rows.append(Row(f"{rank.rank}", values, tone="strong" if rank.rank in late else ""))
    hidden_count = len(trace.ranks) - len(rows)
    description = "that are waited for no longer" if waits else "others"
    left_out = [f"and {hidden_count:,} {description}"] if hidden_count else []
    columns = (*RANK_COLUMNS, MFU) if any(row.cells.get("MFU") for row in rows) else RANK_COLUMNS
    return Table(
        title="Ranks", how="measured", first="rank", columns=columns, rows=rows, top=RANKS,
        notes=(*left_out, *side_by_side(trace.job)),
    )  # fmt: skip


def exchanges(trace: Trace) -> Table | None:
    """Return who sent how much to whom in all-to-alls; None where no rank's file says it.

    Of many ranks those that send most, to those that get most.
    """
    sent = {rank.rank: rank.sent for rank in trace.ranks if rank.sent}
    received: Counter[int] = Counter()
    for of_rank in sent.values():
        received.update(of_rank)
    if not received:
        return None
    receivers = sorted(number for number, _ in received.most_common(EXCHANGING))
    senders = sorted(sent, key=lambda number: -sum(sent[number].values()))[:EXCHANGING]
    columns = [Column(f"to {number}", unit="bytes", empty="–") for number in receivers]
    rows = [
        Row(f"{number}", {f"to {other}": sent[number].get(other) for other in receivers})
        for number in sorted(senders, key=lambda number: -1 if number is None else number)
    ]
    hidden = max(len(received), len(sent)) - EXCHANGING
    return Table(
        title="All-to-all", how="counted", first="from rank", columns=columns, rows=rows,
        notes=(f"of the {EXCHANGING} ranks that send and get most",) if hidden > 0 else (),
    )  # fmt: skip


def side_by_side(job: Job | None) -> Iterator[str]:
    """Say how many collectives were matched across ranks, and which were not."""
    if job is None:
        return
    calls = f"{job.calls:,} collective{'s' * (job.calls != 1)}" if job.calls else "No collectives"
    yield f"{calls} matched{', each' * bool(job.calls)} across the ranks of its group."
    if job.unmatched:
        kinds = f"{job.unmatched} kind{'s are' if job.unmatched > 1 else ' is'}"
        yield f"{kinds} not equally often on all ranks: those that differ are left out."
