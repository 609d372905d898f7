"""The summary for a terminal; 80 columns are enough, and a pipe gets no colours."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge.model.profile import Profile
from torchgauge.model.record import MeasurementWarning
from torchgauge.report import alive_tensors
from torchgauge.report import tree as tree_report
from torchgauge.report.bar import bar
from torchgauge.report.plain import plain
from torchgauge.report.section import Row, Section
from torchgauge.report.sections import sections, warning_text, warnings
from torchgauge.report.text import Text
from torchgauge.report.tree import View

BAR = 20
LABEL = 14
VALUE = 16


def render(profile: Profile) -> str:
    """Return the summary as plain text (see `plain`)."""
    return plain(lambda width: view(profile, width=width))


def view(profile: Profile, shown: View | None = None, *, width: int) -> RenderableType:
    """Return the summary as something rich prints in `width` columns."""
    head, *others = sections(profile)
    blocks: list[RenderableType] = [_head(head)]
    blocks += [block for section in others for block in (Text(""), section_view(section))]
    if profile.memory is not None and profile.memory.tensors:
        blocks += [Text(""), alive_tensors.view(profile.memory, width)]
    if profile.tree is not None:
        blocks += [Text(""), tree_report.view(profile.tree, shown, width=width)]
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


def warnings_view(title: str, shown: list[MeasurementWarning]) -> RenderableType:
    """Return warnings, what failed with another sign."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=3, justify="right")
    table.add_column(overflow="fold")
    for warning in shown:
        sign = ("✗", "bold red") if warning.failed else ("!", "bold yellow")
        probe = f"{warning.probe}: " if warning.probe else ""
        said = Text.of_lines(warning_text(warning))
        text = Text.assemble(probe, said, (f"  [{warning.id}]", "dim"))
        table.add_row(Text(*sign), text)
    return Group(Text(title, style="bold"), Padding(table, 0))
