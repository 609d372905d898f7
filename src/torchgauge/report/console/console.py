"""The summary for a terminal; 80 columns are enough, and a pipe gets no colours."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning
from torchgauge.report.console import tree as tree_report
from torchgauge.report.console.bar import bar
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import Text
from torchgauge.report.console.tree import View
from torchgauge.report.content import alive_tensors
from torchgauge.report.content.section import Row, Section
from torchgauge.report.content.sections import sections, warning_text, warnings

BAR = 20
LABEL = 14
VALUE = 16


def render(profile: Profile) -> str:
    """Return the summary as plain text (see `plain`)."""
    return plain(lambda width: view(profile, width=width))


def view(profile: Profile, tree_options: View | None = None, *, width: int) -> RenderableType:
    """Return the summary as something rich prints in `width` columns."""
    head, *body = sections(profile)
    blocks: list[RenderableType] = [_head(head)]
    blocks += [block for section in body for block in (Text(""), section_view(section))]
    if profile.memory is not None and profile.memory.tensors:
        blocks += [Text(""), alive_tensors.view(profile.memory, width)]
    if profile.tree is not None:
        blocks += [Text(""), tree_report.view(profile.tree, tree_options, width=width)]
    if listed := warnings(profile):
        title = "Warnings" if profile.complete else "Failed and warnings"
        blocks += [Text(""), warnings_view(title, listed)]
    return Group(*blocks)


def _head(section: Section) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", width=LABEL, no_wrap=True)
    table.add_column(overflow="fold")
    for row in section.rows:
        note = f"  ({row.note})" if row.note else ""
        table.add_row(f"  {row.label}", Text.assemble(row.value, (note, "dim")))
    return Group(Text(section.title, style="bold cyan"), table)


def section_view(section: Section) -> RenderableType:
    """Return a titled group of rows."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", width=LABEL, no_wrap=True)
    table.add_column(justify="right", min_width=VALUE, no_wrap=True)
    table.add_column(overflow="fold")
    for row in section.rows:
        table.add_row(f"  {row.label}", row.value, _note(row))
    title = Text.assemble((section.title, "bold"), (f"  {section.how}", "dim italic"))
    notes = [Padding(Text(note, style="dim"), (0, 0, 0, 2)) for note in section.notes]
    return Group(title, table, *notes)


def _note(row: Row) -> Text:
    note = Text.of_lines(row.note, style="dim")
    if row.share is None:
        return note
    share = f" {row.share:5.1%}".replace("%", " %")
    return Text.assemble((bar(row.share, BAR), "cyan"), share, "  " if row.note else "", note)


def warnings_view(title: str, measurement_warnings: list[MeasurementWarning]) -> RenderableType:
    """Return warnings; probes that failed have a sign of their own."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=3, justify="right")
    table.add_column(overflow="fold")
    for warning in measurement_warnings:
        sign = ("✗", "bold red") if warning.failed else ("!", "bold yellow")
        probe = f"{warning.probe}: " if warning.probe else ""
        message = Text.of_lines(warning_text(warning))
        text = Text.assemble(probe, message, (f"  [{warning.id}]", "dim"))
        table.add_row(Text(*sign), text)
    return Group(Text(title, style="bold"), Padding(table, 0))
