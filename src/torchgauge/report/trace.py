"""What a recorded trace says: what stands out, where the devices' time went, and the tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from torchgauge import units
from torchgauge.model.critical_path import CriticalPath
from torchgauge.model.finding import Finding
from torchgauge.model.trace import RankTrace, Trace
from torchgauge.report import tree as tree_report
from torchgauge.report.bar import bar
from torchgauge.report.console import warnings_view
from torchgauge.report.plain import plain
from torchgauge.report.sparkline import stepped
from torchgauge.report.trace_devices import devices, ranks, titled
from torchgauge.report.trace_standing_out import standing_out, warned
from torchgauge.report.tree import View
from torchgauge.report.visible import visible

BAR = 10
MOST = 8  # rows of a table of details
SIGNS = {"serious": ("✗", "bold red"), "warning": ("!", "bold yellow"), "info": ("·", "dim")}


def render(trace: Trace) -> str:
    """Return the summary as plain text, 80 columns wide."""
    return plain(lambda width: view(trace, width=width))


def view(
    trace: Trace, shown: View | None = None, *, width: int, rank: int | None = None
) -> RenderableType:
    """Return the summary as something rich prints in `width` columns, details of one rank."""
    one = chosen(trace, rank)
    blocks: list[RenderableType] = [_head(trace, one)]
    if found := standing_out(trace, one):
        blocks += [Text(""), findings(found)]
    if len(trace.ranks) > 1:
        blocks += [Text(""), ranks(trace)]
        blocks += [Text(""), Text(f"Rank {one.rank} ({visible(one.file)})", style="bold cyan")]
    if one.times:
        blocks += [Text(""), devices(one)]
    for block in _details(one):
        blocks += [Text(""), block]
    blocks += [Text(""), tree_report.view(one.tree, shown, width=width)]
    if one.missing:
        blocks += [Text(""), _missing(one)]
    if listed := warned(trace, one):
        blocks += [Text(""), warnings_view("Warnings", listed)]
    return Group(*blocks)


def chosen(trace: Trace, rank: int | None = None) -> RankTrace:
    """Return the rank that details are of: the one asked for, the straggler, the first."""
    late = trace.job.straggler if trace.job is not None else None
    number = late if rank is None else rank
    return next((one for one in trace.ranks if one.rank == number), trace.ranks[0])


def _head(trace: Trace, one: RankTrace) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", width=14, no_wrap=True)
    grid.add_column(overflow="fold")
    for label, said in facts(trace, one):
        grid.add_row(f"  {label}", visible(said))
    by = one.contents.recorder
    how = f"  recorded by {visible(by)}" if by else "  recorded"
    return Group(Text.assemble((visible(trace.name), "bold cyan"), (how, "dim")), grid)


def facts(trace: Trace, one: RankTrace) -> Iterator[tuple[str, str]]:
    """Yield what was recorded, as label and text."""
    used = {each.device for each in one.times}
    devices = [each for each in one.devices if each.number in used] or list(one.devices)
    names = dict.fromkeys(
        f"{each.name}, {units.size(each.memory, 3)}" if each.memory else each.name
        for each in devices
    )
    yield "device", "; ".join(names) or "unknown"
    if one.versions:
        yield "software", ", ".join(f"{name} {said}" for name, said in one.versions.items())
    if one.world is not None and one.world > 1:
        which = f"rank {one.rank}" if len(trace.ranks) == 1 else f"{len(trace.ranks)} files"
        yield "ranks", f"{which} of {one.world}"
    has = one.contents
    yield "window", f"{units.time(one.window)}, {has.events:,} events"
    parts = {
        "spans of the host" if has.recorder in ("JAX", "Proton") else "operators": has.operators,
        "launches": has.launches, "pieces of device work":
        has.device_work, "allocations": has.memory,
    }  # fmt: skip
    said = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    yield "holds", said or "nothing that is known"


def findings(found: Sequence[Finding]) -> RenderableType:
    """Return what stands out, each with evidence and what to try."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=3, justify="right")
    grid.add_column(overflow="fold")
    for one in found:
        text = Text.assemble(
            (visible(one.title), "bold"),
            f"\n{visible(one.evidence)} ",
            (visible(one.remedy), "dim"),
        )
        grid.add_row(Text(*SIGNS[one.severity]), text)
    return Group(Text("What stands out", style="bold"), grid)


def _details(rank: RankTrace) -> Iterator[RenderableType]:
    if rank.critical_path is not None:
        yield _path(rank.critical_path)
    if rank.collectives:
        yield _collectives(rank)
    if rank.copies:
        yield _copies(rank)
    if rank.queues:
        yield _queues(rank)
    if rank.synchronisations:
        yield _synchronisations(rank)
    if rank.memory:
        yield _memory(rank)


def _path(path: CriticalPath) -> RenderableType:
    table = titled("Critical path", "estimated", "time", "share", "", first="")
    for name in ("compute", "communication", "copy", "host", "launch", "pause"):
        time: float = getattr(path, name)
        if time:
            share = time / path.length
            drawn = Text(bar(share, BAR), style="cyan")
            table.add_row(f"  {name}", units.time(time), units.percent(share), drawn)
    most = [one for one in path.items if one.link != "pause"][:3]
    said = "; ".join(f"{units.time(one.time, 3)} {_short(one.name)}" for one in most)
    return Group(table, Padding(Text(f"Most of it: {said}.", style="dim"), (0, 0, 0, 2)))


def _short(name: str, most: int = 40) -> str:
    text = visible(name)
    return text if len(text) <= most else text[: most - 1] + "…"


def _collectives(rank: RankTrace) -> RenderableType:
    columns = ("size", "ranks", "calls", "time", "exposed", "waited", "bus")
    table = titled("Collectives", "measured", *columns, first="")
    for one in rank.collectives[:MOST]:
        least = "≥ " if one.wait is None and one.bus_bandwidth is not None else ""
        table.add_row(
            f"  {visible(one.name)}",
            "–" if one.bytes is None else units.size(one.bytes, 3),
            "–" if one.group is None else str(one.group),
            f"{one.calls:,}",
            units.time(one.time, 3),
            units.time(one.exposed, 3),
            "–" if one.wait is None else units.time(one.wait, 3),
            "–" if one.bus_bandwidth is None else f"{least}{units.size(one.bus_bandwidth, 3)}/s",
        )
    return _with_more(table, len(rank.collectives))


def _copies(rank: RankTrace) -> RenderableType:
    table = titled("Copies", "measured", "host memory", "count", "time", "bytes", "rate", first="")
    kinds = {True: "pageable", False: "pinned", None: ""}
    for one in rank.copies:
        table.add_row(
            f"  {visible(one.kind)}",
            kinds[one.pageable],
            f"{one.count:,}",
            units.time(one.time, 3),
            "–" if one.bytes is None else units.size(one.bytes, 3),
            "–" if one.bandwidth is None else f"{units.size(one.bandwidth, 3)}/s",
        )
    return table


def _queues(rank: RankTrace) -> RenderableType:
    columns = ("mean", "most", "empty", "delay", "p99")
    table = titled("Launched and not begun", "measured", *columns, first="")
    for one in rank.queues[:MOST]:
        table.add_row(
            f"  GPU {one.device} stream {one.stream}".replace("None", "?"),
            units.significant(one.mean),
            f"{one.most:,}",
            units.percent(one.empty),
            units.time(one.delay_median, 3),
            units.time(one.delay_p99, 3),
        )
    note = "empty: pieces of work behind which none waited. delay: from launch to begin, median."
    more = _with_more(table, len(rank.queues))
    return Group(more, Padding(Text(note, style="dim"), (0, 0, 0, 2)))


def _synchronisations(rank: RankTrace) -> RenderableType:
    table = titled("The host waited for a device", "measured", "calls", "time", first="")
    for one in rank.synchronisations[:MOST]:
        parts = [part for part in (one.operator, one.layer and f"in {one.layer}") if part]
        where = f" ({', '.join(parts)})" if parts else ""
        table.add_row(f"  {visible(one.call + where)}", f"{one.count:,}", units.time(one.time, 3))
    return _with_more(table, len(rank.synchronisations))


def _memory(rank: RankTrace) -> RenderableType:
    columns = ("before", "peak", "at", "after", "reserved", "")
    table = titled("Memory of tensors", "measured", *columns, first="")
    for one in rank.memory[:MOST]:
        table.add_row(
            "  host" if one.device is None else f"  GPU {one.device}",
            units.size(one.before, 3),
            units.size(one.peak, 3),
            units.time(one.peak_at, 3),
            units.size(one.after, 3),
            "–" if one.reserved is None else units.size(one.reserved, 3),
            Text(stepped(one.timeline, 1, 2 * BAR), style="cyan"),
        )
    return _with_more(table, len(rank.memory))


def _with_more(table: Table, rows: int) -> RenderableType:
    if rows <= MOST:
        return table
    return Group(table, Padding(Text(f"and {rows - MOST:,} more", style="dim"), (0, 0, 0, 2)))


def _missing(rank: RankTrace) -> RenderableType:
    lines = [Padding(Text(one, style="dim"), (0, 0, 0, 2)) for one in rank.missing]
    return Group(Text("Not recorded", style="bold"), *lines)
