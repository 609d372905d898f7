"""A comparison for a terminal: what differs around the runs, the figures, and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from torchgauge import units
from torchgauge.records.comparison import Change, Comparison, Difference, Place, Side
from torchgauge.records.verdict import Ruling
from torchgauge.report.console.console import warnings_view
from torchgauge.report.console.fitted_table import Column, Line, fitted_table
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import Text
from torchgauge.visible import one_line

TOP = 10
# Places with unchanged work and a smaller share of the step's change are left out.
SMALLEST_SHARE = 0.01
STYLES = {
    "better": "green",
    "worse": "bold red",
    "same": "dim",
    "inconclusive": "yellow",
    "unknown": "dim",
}
TITLES = {"layer": "Layers", "operator": "Operators", "kernel": "Kernels"}
FIGURES = (
    Column("baseline"),
    Column("current"),
    Column("change"),
    Column("95 %", priority=1),
    Column("verdict", left_aligned=True),
)
PLACES = (
    Column("class", priority=4, left_aligned=True, style="dim", max_width=24),
    Column("baseline", priority=2),
    Column("current", priority=1),
    Column("adds"),
    Column("change", priority=0),
    Column("95 %", priority=3),
    Column("calls", priority=5),
    Column("FLOPs", priority=6),
)


def render(comparison: Comparison) -> str:
    """Return the comparison as plain text (see `plain`)."""
    return plain(lambda width: view(comparison, width=width))


def view(comparison: Comparison, *, width: int, top: int = TOP) -> RenderableType:
    """Return the comparison as something rich prints in `width` columns."""
    blocks: list[RenderableType] = [_head(comparison)]
    if comparison.differences:
        blocks += [Text(""), differences_view(comparison.differences)]
    blocks += [Text(""), _figures(comparison.changes, width), *_reasons(comparison.changes)]
    for places in (comparison.layers, comparison.operators, comparison.kernels):
        top_places = notable_places(places, comparison, top)
        if top_places:
            blocks += [Text(""), _places(comparison, top_places, len(places), width)]
    if comparison.all_warnings:
        blocks += [Text(""), warnings_view("Warnings", list(comparison.all_warnings))]
    return Group(*blocks)


def _head(comparison: Comparison) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, side in (("baseline", comparison.baseline), ("current", comparison.current)):
        table.add_row(
            f"  {name}",
            Text.assemble(one_line(side.label), (f"  {one_line(side_details(side))}", "dim")),
        )
    title = f"{comparison.baseline.target.name} → {comparison.current.target.name}"
    if comparison.baseline.target.name == comparison.current.target.name:
        title = comparison.current.target.name
    how = "  compared, measured in turn" if comparison.paired else "  compared"
    return Group(Text.assemble((one_line(title), "bold cyan"), (how, "dim italic")), table)


def side_details(side: Side) -> str:
    """Return a side's commit, date, number of processes and machine."""
    number = side.processes
    runs = f"{number} process{'es' if number != 1 else ''}" if number else "not timed"
    parts = [side.commit[:10], side.created[:16].replace("T", " "), runs, side.machine]
    return ", ".join(part for part in parts if part)


def differences_view(differences: Sequence[Difference]) -> RenderableType:
    """Return what differs around the runs, and what that forbids."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for difference in differences:
        description = Text.assemble(one_line(f"{difference.baseline} → {difference.current}"))
        if difference.timing:
            description.append("  times cannot be compared", style="yellow")
        if difference.work:
            description.append(", nor counts", style="yellow")
        table.add_row(Text(f"  {difference.part}: {one_line(difference.name)}"), description)
    return Group(Text("What differs around the runs", style="bold"), table)


def _figures(changes: Sequence[Change], width: int) -> RenderableType:
    lines = []
    for change in changes:
        cells = {
            "baseline": units.amount(change.baseline, change.unit),
            "current": units.amount(change.current, change.unit),
            "change": relative(change.change),
            "95 %": interval(change),
            "verdict": change.judgement,
        }
        filled_cells = {name: text for name, text in cells.items() if text}
        lines.append(Line(1, change.metric, filled_cells, STYLES[change.judgement]))
    title = Text.assemble(("Figures", "bold"), ("  exact ones first", "dim italic"))
    return Group(title, fitted_table("", lines, FIGURES, width))


def _reasons(changes: Sequence[Change]) -> Iterable[RenderableType]:
    """Yield corrected changes, then each reason for a missing judgement with its metrics."""
    for change in changes:
        if correction_text := corrected_change(change):
            yield Text(f"  {change.metric}: {correction_text}.", style="dim")
    reasons: dict[str, list[str]] = {}
    for change in changes:
        if change.reason:
            reasons.setdefault(change.reason, []).append(change.metric)
    for reason, metrics in reasons.items():
        yield Text(f"  {', '.join(metrics)}: {one_line(reason)}.", style="dim")


def notable_places(places: Sequence[Place], comparison: Comparison, top: int) -> list[Place]:
    """Return the places worth listing: significant, with changed work, or a share of the change."""
    step = abs(comparison.step_change or 0.0)
    selected = [
        place
        for place in places
        if place.significant
        or place.work_changed
        or (place.significant is None and abs(place.contribution) > SMALLEST_SHARE * step > 0)
    ]
    selected.sort(key=lambda place: (not place.significant, -abs(place.contribution)))
    return selected[:top]


def _places(
    comparison: Comparison, places: Sequence[Place], total: int, width: int
) -> RenderableType:
    kind = places[0].kind
    lines = []
    for place in places:
        filled_cells = {name: text for name, text in cells(place).items() if text}
        lines.append(Line(1, place.name or "(the model itself)", filled_cells, _style(place)))
    tested = comparison.places_tested if kind == "layer" else "of one recording each, not tested"
    title = Text.assemble((TITLES[kind], "bold"), (f"  {tested}", "dim italic"))
    table = fitted_table("", lines, PLACES, width)
    step = comparison.step_change
    note = f"  {len(places)} of {total}, by their own time"
    if step is not None:
        note += f"; the step of both trees differs by {signed(step)}"
    return Group(title, table, Text(note, style="dim"))


def cells(place: Place) -> dict[str, str]:
    """Return the texts of a place by column."""
    calls = _before_and_after(place.baseline_calls, place.current_calls)
    return {
        "class": place.type,
        "baseline": "absent" if place.appeared else units.time(place.baseline),
        "current": "absent" if place.vanished else units.time(place.current),
        "adds": signed(place.contribution),
        "change": relative(place.change),
        "95 %": interval(place),
        "calls": calls if place.baseline_calls != place.current_calls else "",
        "FLOPs": _before_and_after(place.baseline_flops, place.current_flops)
        if place.baseline_flops != place.current_flops
        else "",
    }


def _before_and_after(old: int | None, new: int | None) -> str:
    return " → ".join(units.amounts(old, new, "")).replace("unknown", "–")


def _style(place: Place) -> str:
    if place.significant:
        return "red" if place.contribution > 0 else "green"
    return "" if place.significant is None else "dim"


def relative(change: float | None) -> str:
    """Format a relative change with its sign: 0.0312 → '+3.1 %'."""
    if change is None:
        return ""
    if change == 0:
        return "0 %"
    if change > 9:
        return f"×{units.significant(1 + change, 3)}"
    text = f"{100 * change:+.1f}" if abs(change) >= 0.001 else f"{100 * change:+.2g}"
    return f"{text.replace('-', '−')} %"


def interval(change: Change | Place) -> str:
    """Format the interval of a change: '+1.2 … +4.0 %'."""
    if change.interval is None:
        return ""
    low, high = relative(change.interval.low), relative(change.interval.high)
    return f"{low.removesuffix(' %')} … {high}"


def corrected_change(change: Change | Ruling) -> str:
    """Format the change at the machine's usual speed: '+1.2 % (95 % in … )'."""
    corrected_interval = change.corrected_interval
    if change.corrected is None or corrected_interval is None:
        return ""
    low = relative(corrected_interval.low).removesuffix(" %")
    high = relative(corrected_interval.high)
    inside = f"{100 * corrected_interval.confidence:.0f} % in {low} … {high}"
    return f"{relative(change.corrected)} ({inside}) at the machine's usual speed, estimated"


def signed(seconds: float) -> str:
    """Format a difference of times with its sign."""
    if seconds == 0:
        return "0 s"
    return ("+" if seconds > 0 else "−") + units.time(abs(seconds), 3)
