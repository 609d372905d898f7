"""Two traces side by side for a terminal: what differs around them, then what changed where."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table

from torchgauge import units
from torchgauge.records.trace.trace_diff import Changes, TraceDiff, TraceSide
from torchgauge.report.console.comparison import TOP, cells, differences_view, relative, signed
from torchgauge.report.console.console import warnings_view
from torchgauge.report.console.fitted_table import Column, Line, fitted_table
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import Text
from torchgauge.visible import one_line

TITLES = {
    "layers": "Layers",
    "operators": "Operators",
    "shapes": "Operators by shape",
    "kernels": "Kernels",
}
BY_OWN_TIME = "by their own time"
PARTS = (Column("baseline"), Column("current"), Column("adds"), Column("change"))
PLACES = (
    Column("class", priority=3, left_aligned=True, style="dim", max_width=24),
    Column("baseline"),
    Column("current"),
    Column("adds"),
    Column("change", priority=0),
    Column("calls", priority=1),
    Column("FLOPs", priority=2),
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
    for table in shown_tables(diff):
        blocks += [Text(""), _places(table, width, top)]
    if diff.warnings:
        blocks += [Text(""), warnings_view("Warnings", list(diff.warnings))]
    return Group(*blocks)


def _head(diff: TraceDiff) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, side in (("baseline", diff.baseline), ("current", diff.current)):
        label = Text.assemble(one_line(side.label), (f"  {one_line(side_details(side))}", "dim"))
        grid.add_row(f"  {name}", label)
    return Group(Text.assemble(("Two traces", "bold cyan"), ("  recorded", "dim italic")), grid)


def side_details(side: TraceSide) -> str:
    """Return a side's device, rank and number of steps."""
    parts = [side.device]
    if side.rank is not None:
        parts.append(f"rank {side.rank}" + (f" of {side.world}" if side.world else ""))
    if side.steps > 1:
        parts.append(f"{side.steps} steps")
    return ", ".join(part for part in parts if part)


def shown_tables(diff: TraceDiff) -> list[Changes]:
    """Return the tables worth showing; that of layers only where there is more than the model."""
    return [table for table in diff.tables if len(table.places) > 1 or table.kind != "layers"]


def parts(diff: TraceDiff) -> tuple[str, list[Line]]:
    """Return what the times are of, and how each part of the devices' time changed."""
    lines = [
        Line(1, part.part, _texts(part.baseline, part.current, part.contribution))
        for part in diff.parts
    ]
    sides = (diff.baseline.window, diff.current.window)
    lines.append(Line(0, "window", _texts(*sides, diff.window), "bold"))
    scope = (
        "of a step" if max(diff.baseline.steps, diff.current.steps) > 1 else "of the whole window"
    )
    return f"measured, {scope}", lines


def _parts(diff: TraceDiff, width: int) -> RenderableType:
    scope, lines = parts(diff)
    title = Text.assemble(("Time of the devices", "bold"), (f"  {scope}", "dim italic"))
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
    listed = [place for place in table.places if place.contribution or place.work_changed][:top]
    lines = [
        Line(1, place.name or "(the model itself)", {k: v for k, v in cells(place).items() if v})
        for place in listed
    ]
    if not listed and not table.total:
        return [], f"none of {len(table.places)} changed"
    other_change = table.total - sum(place.contribution for place in listed)
    note = f"{len(listed)} of {len(table.places)}; all others {signed(other_change)}, "
    return lines, note + f"together {signed(table.total)}"


def _places(table: Changes, width: int, top: int) -> RenderableType:
    lines, note = places(table, top)
    title = Text.assemble((TITLES[table.kind], "bold"), (f"  {BY_OWN_TIME}", "dim italic"))
    drawn = [fitted_table("", lines, PLACES, width, LONGEST)] if lines else []
    return Group(title, *drawn, Text(f"  {note}", style="dim"))
