"""Where the time of devices went: of one rank by stream, and of all ranks beside each other."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from torchgauge import units
from torchgauge.model.breakdown import Breakdown
from torchgauge.model.trace import Job, RankTrace, Trace

STREAMS = 16
RANKS = 32


def titled(title: str, how: str, *columns: str, first: str) -> Table:
    """Return an empty table that says what it holds, and how that is known."""
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        header_style="dim",
        title=Text.assemble((title, "bold"), (f"  {how}", "dim italic")),
        title_justify="left",
    )
    table.add_column(f"  {first}", overflow="fold")
    for name in columns:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)  # bars: left
    return table


PARTS = ("compute", "comm.", "copies", "idle", "host", "device", "other")


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


def devices(rank: RankTrace) -> RenderableType:
    """Return the shares of each device's window, and of its busiest streams."""
    table = titled("Where the time of devices went", "measured", "window", *PARTS, first="")
    for device in rank.times:
        name = rank.called(device.device)
        window = units.time(device.breakdown.window, 3)
        table.add_row(f"  {name}", window, *_shares(device.breakdown), style="bold")
        busiest = sorted(device.streams, key=lambda each: -each.breakdown.busy)[:STREAMS]
        for stream in device.streams if len(device.streams) > 1 else ():
            if stream in busiest:
                of = "unknown" if stream.stream is None else f"{stream.stream}"
                table.add_row(f"    stream {of}", "", *_shares(stream.breakdown))
        if more := len(device.streams) - len(busiest):
            table.add_row(f"    and {more:,} less busy", "")
    note = Text(
        "comm. and copies: beside no computation. Idle, by what it waited for: the host, the "
        "device's own pause of 5 µs at most, other.",
        style="dim",
    )
    return Group(table, Padding(note, (0, 0, 0, 2)))


def ranks(trace: Trace) -> RenderableType:
    """Return the ranks that the others wait for most, and what all say together."""
    columns = ("window", "compute", "comm.", "idle", "waits", "waited for")
    table = titled("Ranks", "measured", *columns, first="rank")
    waits = {one.rank: one for one in trace.job.waits} if trace.job is not None else {}
    late = trace.job.straggler if trace.job is not None else None

    def waited_for(one: RankTrace) -> float:
        wait = waits.get(one.rank if one.rank is not None else -1)
        return wait.waited_for if wait is not None else 0.0

    last = {id(one) for one in sorted(trace.ranks, key=waited_for, reverse=True)[:RANKS]}
    for one in trace.ranks:
        if id(one) not in last:
            continue
        whole = one.times[0].breakdown if one.times else None
        shares = list(_shares(whole)) if whole is not None else ["–"] * len(PARTS)
        wait = waits.get(one.rank if one.rank is not None else -1)
        times = (wait.waits, wait.waited_for) if wait is not None else (None, None)
        table.add_row(
            f"  {one.rank}",
            units.time(one.window, 3),
            *(shares[0], shares[1], shares[3]),
            *("–" if time is None else units.time(time, 3) for time in times),
            style="bold" if one.rank == late else "",
        )
    more = len(trace.ranks) - len(last)
    said = [*([f"and {more:,} that are waited for no longer"] * (more > 0)), *_job(trace.job)]
    return Group(table, *(Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in said))


def _job(job: Job | None) -> Iterator[str]:
    if job is None:
        return
    calls = f"{job.calls:,} collective{'s' * (job.calls != 1)}"
    yield f"{calls} put side by side, each on the ranks of its group."
    if job.unmatched:
        kinds = f"{job.unmatched} kind{'s are' if job.unmatched > 1 else ' is'}"
        yield f"{kinds} not equally often on all ranks: those that differ are left out."
