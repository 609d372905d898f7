"""Advice for a terminal: what held with its code, what did not and why, what was not tried."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge.model.advice import Advice, Trial
from torchgauge.report import advice_words as words
from torchgauge.report.console import warnings_view
from torchgauge.report.fitted_table import Column, Line, fitted_table
from torchgauge.report.plain import plain
from torchgauge.report.text import Text
from torchgauge.visible import one_line

STYLES = {"accepted": "green", "rejected": "", "failed": "red", "untried": "dim"}
LABEL = 10
COLUMNS = (
    Column("speed-up"),
    Column("95 %", need=1),
    Column("memory", need=2),
    Column("error", need=3, style="dim"),
)


def render(advice: Advice) -> str:
    """Return the advice as plain text (see `plain`)."""
    return plain(lambda width: view(advice, width=width))


def view(advice: Advice, *, width: int) -> RenderableType:
    """Return the advice as something rich prints in `width` columns."""
    title = Text.assemble((words.title(advice), "bold cyan"), "  ", words.headline(advice))
    blocks: list[RenderableType] = [title, _pairs(words.facts(advice), LABEL)]
    if advice.accepted:
        blocks += [Text(""), *_accepted(advice, width)]
    if advice.combinations:
        blocks += [Text(""), *_combinations(advice)]
    if words.together(advice):
        blocks += [Text(""), *_best(advice)]
    for outcome in ("rejected", "failed", "untried"):
        if found := advice.of(outcome):
            blocks += [Text(""), _others(words.TITLES[outcome], found, outcome)]
    if estimates := [one for one in advice.trials if one.assumed]:
        blocks += [Text(""), *_estimates(estimates)]
    if advice.warnings:
        blocks += [Text(""), warnings_view("Warnings", list(advice.warnings))]
    if advice.interrupted:
        blocks += [Text(""), Text("Interrupted before its end.", style="yellow")]
    return Group(*blocks)


def _pairs(pairs: Sequence[tuple[str, str]], label: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", min_width=label, no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in pairs:
        table.add_row(f"  {name}", Text(text))
    return table


def _accepted(advice: Advice, width: int) -> list[RenderableType]:
    heading = Text.assemble((words.TITLES["accepted"], "bold"), ("  measured", "dim italic"))
    lines = [Line(0, f"✓ {one.id}", _cells(one), "green") for one in advice.accepted]
    blocks: list[RenderableType] = [heading, fitted_table("", lines, COLUMNS, width)]
    for one in advice.accepted:
        blocks += [Text(""), Text(f"  {one.title}", style="bold"), _code(one.code)]
        blocks += [Padding(Text(said, style="dim"), (0, 0, 0, 4)) for said in words.details(one)]
    return blocks


def _cells(trial: Trial) -> dict[str, str]:
    found = trial.speed_up
    cells = {
        "speed-up": words.times(found),
        "95 %": words.interval(found),
        "memory": words.memory(trial),
        "error": words.error(trial.output),
    }
    return {name: text for name, text in cells.items() if text}


def _code(code: str) -> RenderableType:
    return Padding(Text.of_lines(code, style="cyan", overflow="fold"), (0, 0, 0, 4))


def _combinations(advice: Advice) -> list[RenderableType]:
    rows = [
        (f"{words.SIGNS[one.outcome]} {' + '.join(one.candidates)}", one_line(one.reason))
        for one in advice.combinations
    ]
    return [Text("Together", style="bold"), *_stacked(rows)]


def _stacked(rows: Sequence[tuple[str, str]]) -> list[RenderableType]:
    found: list[RenderableType] = []
    for name, text in rows:
        found += [
            Text(f"  {name}"),
            Padding(Text(text, style="dim"), (0, 0, 0, 4)),
        ]
    return found


def _best(advice: Advice) -> list[RenderableType]:
    best = advice.best
    assert best is not None  # noqa: S101 - asked before
    found = f"{words.times(best.speed_up)} {words.interval(best.speed_up)}"
    heading = Text.assemble(("What to use", "bold"), f"  {' + '.join(best.candidates)}, {found}")
    lines = "\n".join(filter(None, (best.environment, best.code)))
    return [heading, _code(lines)]


def _others(title: str, trials: Sequence[Trial], outcome: str) -> RenderableType:
    rows = [(f"{words.SIGNS[outcome]} {one.id}", words.reason(one)) for one in trials]
    table = _pairs(rows, max(len(name) for name, _ in rows) + 2)
    return Group(Text(title, style="bold"), Padding(table, style=STYLES[outcome]))


def _estimates(trials: Sequence[Trial]) -> list[RenderableType]:
    blocks: list[RenderableType] = [
        Text.assemble(("On several devices", "bold"), ("  estimated", "dim italic"))
    ]
    for one in trials:
        blocks += _stacked([(one.title, "; ".join(map(words.assumed, one.assumed)))])
    return blocks
