"""What a recorded trace says: what stands out, where the devices' time went, and the tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge import units
from torchgauge.records.finding import Finding
from torchgauge.records.trace.trace import RankTrace, Trace
from torchgauge.report.console import tree as tree_report
from torchgauge.report.console.console import warnings_view
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import END, Text
from torchgauge.report.console.tree import View
from torchgauge.report.content.sheet import Sheet
from torchgauge.report.content.trace_devices import devices, ranks
from torchgauge.report.content.trace_findings import rank_findings, rank_warnings
from torchgauge.report.content.trace_sheets import details

SIGNS = {"serious": ("✗", "bold red"), "warning": ("!", "bold yellow"), "info": ("·", "dim")}


def render(trace: Trace) -> str:
    """Return the summary as plain text (see `plain`)."""
    return plain(lambda width: view(trace, width=width))


def view(
    trace: Trace, tree_options: View | None = None, *, width: int, rank: int | None = None
) -> RenderableType:
    """Return the summary as something rich prints in `width` columns, details of one rank."""
    rank_trace = chosen_rank(trace, rank)
    blocks: list[RenderableType] = [_head(trace, rank_trace)]
    if notable_findings := rank_findings(trace, rank_trace):
        blocks += [Text(""), findings(notable_findings)]
    if len(trace.ranks) > 1:
        blocks += [Text(""), _sheet_table(ranks(trace))]
        blocks += [Text(""), Text(f"Rank {rank_trace.rank} ({rank_trace.file})", style="bold cyan")]
    if rank_trace.times:
        blocks += [Text(""), _sheet_table(devices(rank_trace))]
    for sheet in details(rank_trace):
        blocks += [Text(""), _sheet_table(sheet)]
    blocks += [Text(""), tree_report.view(rank_trace.tree, tree_options, width=width)]
    if rank_trace.missing:
        blocks += [Text(""), _missing(rank_trace)]
    if listed := rank_warnings(trace, rank_trace):
        blocks += [Text(""), warnings_view("Warnings", listed)]
    return Group(*blocks)


def chosen_rank(trace: Trace, rank: int | None = None) -> RankTrace:
    """Return the rank whose details are shown: the requested one, the straggler or the first."""
    straggler = trace.job.straggler if trace.job is not None else None
    number = straggler if rank is None else rank
    return next(
        (rank_trace for rank_trace in trace.ranks if rank_trace.rank == number), trace.ranks[0]
    )


def _head(trace: Trace, rank_trace: RankTrace) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", width=14, no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts(trace, rank_trace):
        grid.add_row(f"  {label}", text)
    by = rank_trace.contents.recorder
    how = f"  recorded by {by}" if by else "  recorded"
    return Group(Text.assemble((trace.name, "bold cyan"), (how, "dim")), grid)


def facts(trace: Trace, rank_trace: RankTrace) -> Iterator[tuple[str, str]]:
    """Yield what was recorded, as label and text."""
    used = {device_time.device for device_time in rank_trace.times}
    recorded = list(rank_trace.devices)
    names = dict.fromkeys(
        f"{device.name}, {units.size(device.memory, 3)}" if device.memory else device.name
        for device in [device for device in recorded if device.number in used] or recorded
    )
    yield "device", "; ".join(names) or "unknown"
    if rank_trace.versions:
        versions = rank_trace.versions.items()
        yield "software", ", ".join(f"{name} {version}" for name, version in versions)
    if rank_trace.world is not None and rank_trace.world > 1:
        rank_text = (
            f"rank {rank_trace.rank}" if len(trace.ranks) == 1 else f"{len(trace.ranks)} files"
        )
        yield "ranks", f"{rank_text} of {rank_trace.world}"
    contents = rank_trace.contents
    yield "window", f"{units.time(rank_trace.window)}, {contents.events:,} events"
    host_spans = "spans of the host" if contents.recorder in ("JAX", "Proton") else "operators"
    parts = {
        host_spans: contents.operators,
        "launches": contents.launches,
        "pieces of device work": contents.device_work,
        "allocations": contents.memory,
    }
    text = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    yield "holds", text or "nothing that is known"


def findings(shown_findings: Sequence[Finding]) -> RenderableType:
    """Return what stands out, each with evidence and what to try."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=3, justify="right")
    grid.add_column(overflow="fold")
    for finding in shown_findings:
        text = Text.assemble(
            (finding.title, "bold"), END, f"{finding.evidence} ", (finding.remedy, "dim")
        )
        grid.add_row(Text(*SIGNS[finding.severity]), text)
    return Group(Text("What stands out", style="bold"), grid)


def _sheet_table(sheet: Sheet) -> RenderableType:
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
    for index, (words, *cells) in enumerate(sheet.rows):
        style = "bold" if index in sheet.strong else ""
        table.add_row(f"  {words}", *cells, style=style)
    notes = ([f"and {sheet.omitted_rows:,} more"] if sheet.omitted_rows else []) + list(sheet.notes)
    return Group(table, *(Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in notes))


def _missing(rank: RankTrace) -> RenderableType:
    lines = [Padding(Text(text, style="dim"), (0, 0, 0, 2)) for text in rank.missing]
    return Group(Text("Not recorded", style="bold"), *lines)
