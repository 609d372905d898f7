"""A verdict for a terminal: the outcome first, then a line for each ruling, then where and what."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge.model.verdict import Outcome, Ruling, Verdict
from torchgauge.report import rulings
from torchgauge.report.comparison import said
from torchgauge.report.console import warnings_view
from torchgauge.report.fitted_table import Column, Line, fitted_table
from torchgauge.report.plain import plain
from torchgauge.report.text import Text
from torchgauge.visible import one_line

GUILTY = 10
STYLES: dict[Outcome, str] = {
    "pass": "green",
    "fail": "red",
    "inconclusive": "yellow",
    "not comparable": "magenta",
}
COLUMNS = (
    Column("figure"),
    Column("change"),
    Column("95 %"),
    Column("allowed", left=True),
    Column("how", need=1, left=True),
)


def render(verdict: Verdict) -> str:
    """Return the verdict as plain text (see `plain`)."""
    return plain(lambda width: view(verdict, width=width))


def view(verdict: Verdict, *, width: int) -> RenderableType:
    """Return the verdict as something rich prints in `width` columns."""
    blocks: list[RenderableType] = [_head(verdict)]
    if verdict.rulings:
        blocks += [Text(""), _table(verdict, width), *_reasons(verdict)]
    if verdict.guilty:
        blocks += [Text(""), _list("Where it got worse", list(verdict.guilty), GUILTY)]
    if advice := rulings.advice(verdict):
        blocks += [Text(""), _list("What to do", advice, len(advice))]
    if verdict.all_warnings:
        blocks += [Text(""), warnings_view("Warnings", list(verdict.all_warnings))]
    return Group(*blocks)


def _head(verdict: Verdict) -> RenderableType:
    outcome = f"{rulings.SIGNS[verdict.outcome]} {verdict.outcome.upper()}"
    title = Text.assemble((outcome, f"bold {STYLES[verdict.outcome]}"), "  ")
    title.append(rulings.headline(verdict))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, max_width=24)
    table.add_column(overflow="fold")
    for name, side in rulings.sides(verdict.comparison):
        table.add_row(
            f"  {name}",
            Text.assemble(one_line(side.label), (f"  {one_line(said(side))}", "dim")),
        )
    found = verdict.comparison
    for one in () if found is None else found.differences:
        both = one_line(f"{one.baseline} → {one.current}")
        table.add_row(f"  {one_line(one.name)}", both, style="yellow")
    return Group(title, table) if table.row_count else title


def _table(verdict: Verdict, width: int) -> RenderableType:
    lines = [Line(0, *_cells(one), STYLES[one.outcome]) for one in verdict.rulings]
    return fitted_table("", lines, COLUMNS, width)


def _cells(ruling: Ruling) -> tuple[str, dict[str, str]]:
    cells = {
        "figure": rulings.figure(ruling),
        "change": rulings.change(ruling),
        "95 %": rulings.interval(ruling),
        "allowed": rulings.allowed(ruling),
        "how": ruling.how,
    }
    shown = {name: text for name, text in cells.items() if text}
    return f"{rulings.SIGNS[ruling.outcome]} {one_line(ruling.metric)}", shown


def _reasons(verdict: Verdict) -> list[RenderableType]:
    """Say why, once for all metrics that share a reason, and how it was found."""
    reasons: dict[str, list[str]] = {}
    for one in verdict.rulings:
        if why := rulings.why(one):
            reasons.setdefault(why, []).append(one_line(one.metric))
    shown = [f"{', '.join(metrics)}: {reason}." for reason, metrics in reasons.items()]
    if method := rulings.method(verdict):
        shown.append("; ".join(method) + ".")
    return [Padding(Text(one, style="dim"), (0, 0, 0, 2)) for one in shown]


def _list(title: str, texts: list[str], most: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=3, justify="right")
    table.add_column(overflow="fold")
    for text in texts[:most]:
        table.add_row("·", one_line(text))
    if len(texts) > most:
        table.add_row("", Text(f"… {len(texts) - most} more", style="dim"))
    return Group(Text(title, style="bold"), table)
