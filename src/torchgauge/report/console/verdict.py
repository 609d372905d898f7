"""A verdict for a terminal: the outcome, a line for each ruling, regressions and advice."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge.records.verdict import Outcome, Ruling, Verdict
from torchgauge.report.console.comparison import side_details
from torchgauge.report.console.console import warnings_view
from torchgauge.report.console.fitted_table import Column, Line, fitted_table
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import Text
from torchgauge.report.content import rulings
from torchgauge.visible import one_line

MAX_REGRESSIONS = 10
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
    Column("allowed", left_aligned=True),
    Column("how", priority=1, left_aligned=True),
)


def render(verdict: Verdict) -> str:
    """Return the verdict as plain text (see `plain`)."""
    return plain(lambda width: view(verdict, width=width))


def view(verdict: Verdict, *, width: int) -> RenderableType:
    """Return the verdict as something rich prints in `width` columns."""
    blocks: list[RenderableType] = [_head(verdict)]
    if verdict.rulings:
        blocks += [Text(""), _table(verdict, width), *_reasons(verdict)]
    if verdict.regressed_layers:
        blocks += [
            Text(""),
            _list("Where it got worse", list(verdict.regressed_layers), MAX_REGRESSIONS),
        ]
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
            Text.assemble(one_line(side.label), (f"  {one_line(side_details(side))}", "dim")),
        )
    comparison = verdict.comparison
    for difference in () if comparison is None else comparison.differences:
        values = one_line(f"{difference.baseline} → {difference.current}")
        table.add_row(f"  {one_line(difference.name)}", values, style="yellow")
    return Group(title, table) if table.row_count else title


def _table(verdict: Verdict, width: int) -> RenderableType:
    lines = [Line(0, *_cells(ruling), STYLES[ruling.outcome]) for ruling in verdict.rulings]
    return fitted_table("", lines, COLUMNS, width)


def _cells(ruling: Ruling) -> tuple[str, dict[str, str]]:
    cells = {
        "figure": rulings.figure(ruling),
        "change": rulings.change(ruling),
        "95 %": rulings.interval(ruling),
        "allowed": rulings.allowed(ruling),
        "how": ruling.how,
    }
    filled_cells = {name: text for name, text in cells.items() if text}
    return f"{rulings.SIGNS[ruling.outcome]} {one_line(ruling.metric)}", filled_cells


def _reasons(verdict: Verdict) -> list[RenderableType]:
    """Return each reason with the metrics that share it, then the method."""
    reasons: dict[str, list[str]] = {}
    for ruling in verdict.rulings:
        if explanation := rulings.explanation(ruling):
            reasons.setdefault(explanation, []).append(one_line(ruling.metric))
    sentences = [f"{', '.join(metrics)}: {reason}." for reason, metrics in reasons.items()]
    if method := rulings.method(verdict):
        sentences.append("; ".join(method) + ".")
    return [Padding(Text(sentence, style="dim"), (0, 0, 0, 2)) for sentence in sentences]


def _list(title: str, texts: list[str], limit: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=3, justify="right")
    table.add_column(overflow="fold")
    for text in texts[:limit]:
        table.add_row("·", one_line(text))
    if len(texts) > limit:
        table.add_row("", Text(f"… {len(texts) - limit} more", style="dim"))
    return Group(Text(title, style="bold"), table)
