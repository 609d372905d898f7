"""What a recorded trace says: what stands out, where the devices' time went, and the tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge import units
from torchgauge.model.finding import Finding
from torchgauge.model.trace import RankTrace, Trace
from torchgauge.report import tree as tree_report
from torchgauge.report.console import warnings_view
from torchgauge.report.plain import plain
from torchgauge.report.sheet import Sheet
from torchgauge.report.text import END, Text
from torchgauge.report.trace_devices import devices, ranks
from torchgauge.report.trace_sheets import details
from torchgauge.report.trace_standing_out import standing_out, warned
from torchgauge.report.tree import View

SIGNS = {"serious": ("✗", "bold red"), "warning": ("!", "bold yellow"), "info": ("·", "dim")}


def render(trace: Trace) -> str:
    """Return the summary as plain text (see `plain`)."""
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
        blocks += [Text(""), _drawn(ranks(trace))]
        blocks += [Text(""), Text(f"Rank {one.rank} ({one.file})", style="bold cyan")]
    if one.times:
        blocks += [Text(""), _drawn(devices(one))]
    for sheet in details(one):
        blocks += [Text(""), _drawn(sheet)]
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
        grid.add_row(f"  {label}", said)
    by = one.contents.recorder
    how = f"  recorded by {by}" if by else "  recorded"
    return Group(Text.assemble((trace.name, "bold cyan"), (how, "dim")), grid)


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
        text = Text.assemble((one.title, "bold"), END, f"{one.evidence} ", (one.remedy, "dim"))
        grid.add_row(Text(*SIGNS[one.severity]), text)
    return Group(Text("What stands out", style="bold"), grid)


def _drawn(sheet: Sheet) -> RenderableType:
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        header_style="dim",
        title=Text.assemble((sheet.title, "bold"), (f"  {sheet.how}", "dim italic")),
        title_justify="left",
    )
    table.add_column(f"  {sheet.first}", overflow="fold")
    for name in sheet.names:
        style = "" if name else "cyan"
        table.add_column(name, no_wrap=True, justify="right" if name else "left", style=style)
    for at, (words, *cells) in enumerate(sheet.rows):
        style = "bold" if at in sheet.strong else ""
        table.add_row(f"  {words}", *cells, style=style)
    said = ([f"and {sheet.more:,} more"] if sheet.more else []) + list(sheet.notes)
    return Group(table, *(Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in said))


def _missing(rank: RankTrace) -> RenderableType:
    lines = [Padding(Text(one, style="dim"), (0, 0, 0, 2)) for one in rank.missing]
    return Group(Text("Not recorded", style="bold"), *lines)
