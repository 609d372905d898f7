"""A comparison for a terminal: what differs around the runs, the figures, and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from torchgauge import units
from torchgauge.model.comparison import Change, Comparison, Difference, Place, Side
from torchgauge.model.verdict import Ruling
from torchgauge.report.console import warnings_view
from torchgauge.report.fitted_table import Column, Line, fitted_table
from torchgauge.report.plain import plain
from torchgauge.report.text import Text
from torchgauge.visible import one_line

TOP = 10
# Below it a place that did the same work is no news.
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
    Column("95 %", need=1),
    Column("verdict", left=True),
)
PLACES = (
    Column("class", need=4, left=True, style="dim", most=24),
    Column("baseline", need=2),
    Column("current", need=1),
    Column("adds"),
    Column("change", need=0),
    Column("95 %", need=3),
    Column("calls", need=5),
    Column("FLOPs", need=6),
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
        told = changed(places, comparison, top)
        if told:
            blocks += [Text(""), _places(comparison, told, len(places), width)]
    if comparison.all_warnings:
        blocks += [Text(""), warnings_view("Warnings", list(comparison.all_warnings))]
    return Group(*blocks)


def _head(comparison: Comparison) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, side in (("baseline", comparison.baseline), ("current", comparison.current)):
        table.add_row(
            f"  {name}", Text.assemble(one_line(side.label), (f"  {one_line(said(side))}", "dim"))
        )
    title = f"{comparison.baseline.target.name} → {comparison.current.target.name}"
    if comparison.baseline.target.name == comparison.current.target.name:
        title = comparison.current.target.name
    how = "  compared, measured in turn" if comparison.paired else "  compared"
    return Group(Text.assemble((one_line(title), "bold cyan"), (how, "dim italic")), table)


def said(side: Side) -> str:
    """Return what is to be known of a side besides its label."""
    number = side.processes
    runs = f"{number} process{'es' if number != 1 else ''}" if number else "not timed"
    parts = [side.commit[:10], side.created[:16].replace("T", " "), runs, side.machine]
    return ", ".join(part for part in parts if part)


def differences_view(found: Sequence[Difference]) -> RenderableType:
    """Return what differs around the runs, and what that forbids."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for one in found:
        what = Text.assemble(one_line(f"{one.baseline} → {one.current}"))
        if one.timing:
            what.append("  times cannot be compared", style="yellow")
        if one.work:
            what.append(", nor counts", style="yellow")
        table.add_row(Text(f"  {one.part}: {one_line(one.name)}"), what)
    return Group(Text("What differs around the runs", style="bold"), table)


def _figures(changes: Sequence[Change], width: int) -> RenderableType:
    lines = []
    for one in changes:
        cells = {
            "baseline": units.amount(one.baseline, one.unit),
            "current": units.amount(one.current, one.unit),
            "change": relative(one.change),
            "95 %": interval(one),
            "verdict": one.judgement,
        }
        shown = {name: text for name, text in cells.items() if text}
        lines.append(Line(1, one.metric, shown, STYLES[one.judgement]))
    title = Text.assemble(("Figures", "bold"), ("  exact ones first", "dim italic"))
    return Group(title, fitted_table("", lines, FIGURES, width))


def _reasons(changes: Sequence[Change]) -> Iterable[RenderableType]:
    """Say once why judgements are missing, and of which metrics; and what was corrected."""
    for one in changes:
        if said_of := corrected(one):
            yield Text(f"  {one.metric}: {said_of}.", style="dim")
    reasons: dict[str, list[str]] = {}
    for one in changes:
        if one.reason:
            reasons.setdefault(one.reason, []).append(one.metric)
    for reason, metrics in reasons.items():
        yield Text(f"  {', '.join(metrics)}: {one_line(reason)}.", style="dim")


def changed(places: Sequence[Place], comparison: Comparison, top: int) -> list[Place]:
    """Return the places worth telling: proven, with other work, or a share of the change."""
    step = abs(comparison.step_change or 0.0)
    told = [
        one
        for one in places
        if one.significant
        or one.work_changed
        or (one.significant is None and abs(one.contribution) > SMALLEST_SHARE * step > 0)
    ]
    told.sort(key=lambda one: (not one.significant, -abs(one.contribution)))
    return told[:top]


def _places(comparison: Comparison, told: Sequence[Place], of: int, width: int) -> RenderableType:
    kind = told[0].kind
    lines = []
    for one in told:
        shown = {name: text for name, text in cells(one).items() if text}
        lines.append(Line(1, one.name or "(the model itself)", shown, _style(one)))
    tested = comparison.places_tested if kind == "layer" else "of one recording each, not tested"
    title = Text.assemble((TITLES[kind], "bold"), (f"  {tested}", "dim italic"))
    table = fitted_table("", lines, PLACES, width)
    step = comparison.step_change
    note = f"  {len(told)} of {of}, by their own time"
    if step is not None:
        note += f"; the step of both trees differs by {signed(step)}"
    return Group(title, table, Text(note, style="dim"))


def cells(one: Place) -> dict[str, str]:
    """Return the texts of a place by column."""
    calls = _both(one.baseline_calls, one.current_calls)
    return {
        "class": one.type,
        "baseline": "absent" if one.appeared else units.time(one.baseline),
        "current": "absent" if one.vanished else units.time(one.current),
        "adds": signed(one.contribution),
        "change": relative(one.change),
        "95 %": interval(one),
        "calls": calls if one.baseline_calls != one.current_calls else "",
        "FLOPs": _both(one.baseline_flops, one.current_flops)
        if one.baseline_flops != one.current_flops
        else "",
    }


def _both(old: int | None, new: int | None) -> str:
    return " → ".join(units.amounts(old, new, "")).replace("unknown", "–")


def _style(one: Place) -> str:
    if one.significant:
        return "red" if one.contribution > 0 else "green"
    return "" if one.significant is None else "dim"


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


def interval(one: Change | Place) -> str:
    """Format the interval of a change: '+1.2 … +4.0 %'."""
    if one.interval is None:
        return ""
    low, high = relative(one.interval.low), relative(one.interval.high)
    return f"{low.removesuffix(' %')} … {high}"


def corrected(one: Change | Ruling) -> str:
    """Say the change without what the machine's speed explains: '+1.2 % (95 % in … )'."""
    found = one.corrected_interval
    if one.corrected is None or found is None:
        return ""
    low, high = relative(found.low).removesuffix(" %"), relative(found.high)
    inside = f"{100 * found.confidence:.0f} % in {low} … {high}"
    return f"{relative(one.corrected)} ({inside}) at the machine's usual speed, estimated"


def signed(seconds: float) -> str:
    """Format a difference of times with its sign."""
    if seconds == 0:
        return "0 s"
    return ("+" if seconds > 0 else "−") + units.time(abs(seconds), 3)
