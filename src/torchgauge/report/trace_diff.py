"""Two traces side by side for a terminal: what differs around them, then what changed where."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table

from torchgauge import units
from torchgauge.model.trace_diff import Changes, TraceDiff, TraceSide
from torchgauge.report.comparison import TOP, cells, differences_view, relative, signed
from torchgauge.report.console import warnings_view
from torchgauge.report.fitted_table import Column, Line, fitted_table
from torchgauge.report.plain import plain
from torchgauge.report.text import Text
from torchgauge.visible import one_line

TITLES = {
    "layers": "Layers",
    "operators": "Operators",
    "shapes": "Operators by shape",
    "kernels": "Kernels",
}
OWN = "by their own time"
PARTS = (Column("baseline"), Column("current"), Column("adds"), Column("change"))
PLACES = (
    Column("class", need=3, left=True, style="dim", most=24),
    Column("baseline"),
    Column("current"),
    Column("adds"),
    Column("change", need=0),
    Column("calls", need=1),
    Column("FLOPs", need=2),
)
LONGEST = 40


def render(diff: TraceDiff) -> str:
    """Return the comparison as plain text (see `plain`)."""
    return plain(lambda width: view(diff, width=width))


def view(diff: TraceDiff, *, width: int, top: int = TOP) -> RenderableType:
    """Return the comparison as something rich prints in `width` columns."""
    blocks: list[RenderableType] = [_head(diff)]
    if diff.differences:
        blocks += [Text(""), differences_view(diff.differences)]
    if diff.parts:
        blocks += [Text(""), _parts(diff, width)]
    for table in told(diff):
        blocks += [Text(""), _places(table, width, top)]
    if diff.warnings:
        blocks += [Text(""), warnings_view("Warnings", list(diff.warnings))]
    return Group(*blocks)


def _head(diff: TraceDiff) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, side in (("baseline", diff.baseline), ("current", diff.current)):
        label = Text.assemble(one_line(side.label), (f"  {one_line(said(side))}", "dim"))
        grid.add_row(f"  {name}", label)
    return Group(Text.assemble(("Two traces", "bold cyan"), ("  recorded", "dim italic")), grid)


def said(side: TraceSide) -> str:
    """Return what is to be known of a side besides its label."""
    parts = [side.device]
    if side.rank is not None:
        parts.append(f"rank {side.rank}" + (f" of {side.world}" if side.world else ""))
    if side.steps > 1:
        parts.append(f"{side.steps} steps")
    return ", ".join(part for part in parts if part)


def told(diff: TraceDiff) -> list[Changes]:
    """Return the tables worth showing: of a trace without layers the parts say all of the model."""
    return [one for one in diff.tables if len(one.places) > 1 or one.kind != "layers"]


def parts(diff: TraceDiff) -> tuple[str, list[Line]]:
    """Return how the parts of the devices' time changed, the window last, and what they are of."""
    lines = [
        Line(1, one.part, _texts(one.baseline, one.current, one.contribution)) for one in diff.parts
    ]
    sides = (diff.baseline.window, diff.current.window)
    lines.append(Line(0, "window", _texts(*sides, diff.window), "bold"))
    of = "of a step" if max(diff.baseline.steps, diff.current.steps) > 1 else "of the whole window"
    return f"measured, {of}", lines


def _parts(diff: TraceDiff, width: int) -> RenderableType:
    of, lines = parts(diff)
    title = Text.assemble(("Time of the devices", "bold"), (f"  {of}", "dim italic"))
    return Group(title, fitted_table("", lines, PARTS, width))


def _texts(old: float, new: float, adds: float) -> dict[str, str]:
    return {
        "baseline": units.time(old),
        "current": units.time(new),
        "adds": signed(adds),
        "change": relative(new / old - 1) if old else "",
    }


def places(table: Changes, top: int) -> tuple[list[Line], str]:
    """Return the places that changed, those that add most first, and what the others add."""
    shown = [one for one in table.places if one.contribution or one.work_changed][:top]
    lines = [
        Line(1, one.name or "(the model itself)", {k: v for k, v in cells(one).items() if v})
        for one in shown
    ]
    if not shown and not table.total:
        return [], f"none of {len(table.places)} changed"
    rest = table.total - sum(one.contribution for one in shown)
    note = f"{len(shown)} of {len(table.places)}; all others {signed(rest)}, "
    return lines, note + f"together {signed(table.total)}"


def _places(table: Changes, width: int, top: int) -> RenderableType:
    lines, note = places(table, top)
    title = Text.assemble((TITLES[table.kind], "bold"), (f"  {OWN}", "dim italic"))
    drawn = [fitted_table("", lines, PLACES, width, LONGEST)] if lines else []
    return Group(title, *drawn, Text(f"  {note}", style="dim"))
