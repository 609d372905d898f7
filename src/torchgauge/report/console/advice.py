"""Advice for a terminal: accepted changes with their code, then rejected and untried ones."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge.records.advice import Advice, Trial
from torchgauge.report.console.console import warnings_view
from torchgauge.report.console.fitted_table import Column, Line, fitted_table
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import Text
from torchgauge.report.content import advice_words as words
from torchgauge.visible import one_line

STYLES = {"accepted": "green", "rejected": "", "failed": "red", "untried": "dim"}
LABEL = 10
COLUMNS = (
    Column("speed-up"),
    Column("95 %", priority=1),
    Column("memory", priority=2),
    Column("error", priority=3, style="dim"),
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
    if words.best_combination(advice):
        blocks += [Text(""), *_best(advice)]
    for outcome in ("rejected", "failed", "untried"):
        if trials := advice.of(outcome):
            blocks += [Text(""), _other_trials(words.TITLES[outcome], trials, outcome)]
    if estimates := [trial for trial in advice.trials if trial.assumed]:
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
    lines = [Line(0, f"✓ {trial.id}", _cells(trial), "green") for trial in advice.accepted]
    blocks: list[RenderableType] = [heading, fitted_table("", lines, COLUMNS, width)]
    for trial in advice.accepted:
        blocks += [Text(""), Text(f"  {trial.title}", style="bold"), _code(trial.code)]
        blocks += [
            Padding(Text(detail, style="dim"), (0, 0, 0, 4)) for detail in words.details(trial)
        ]
    return blocks


def _cells(trial: Trial) -> dict[str, str]:
    speed_up = trial.speed_up
    cells = {
        "speed-up": words.times(speed_up),
        "95 %": words.interval(speed_up),
        "memory": words.memory(trial),
        "error": words.error(trial.output),
    }
    return {name: text for name, text in cells.items() if text}


def _code(code: str) -> RenderableType:
    return Padding(Text.of_lines(code, style="cyan", overflow="fold"), (0, 0, 0, 4))


def _combinations(advice: Advice) -> list[RenderableType]:
    rows = [
        (
            f"{words.SIGNS[combination.outcome]} {' + '.join(combination.candidates)}",
            one_line(combination.reason),
        )
        for combination in advice.combinations
    ]
    return [Text("Together", style="bold"), *_stacked(rows)]


def _stacked(rows: Sequence[tuple[str, str]]) -> list[RenderableType]:
    blocks: list[RenderableType] = []
    for name, text in rows:
        blocks += [
            Text(f"  {name}"),
            Padding(Text(text, style="dim"), (0, 0, 0, 4)),
        ]
    return blocks


def _best(advice: Advice) -> list[RenderableType]:
    best = advice.best
    assert best is not None  # noqa: S101 - asked before
    speed_up = f"{words.times(best.speed_up)} {words.interval(best.speed_up)}"
    heading = Text.assemble(("What to use", "bold"), f"  {' + '.join(best.candidates)}, {speed_up}")
    lines = "\n".join(filter(None, (best.environment, best.code)))
    return [heading, _code(lines)]


def _other_trials(title: str, trials: Sequence[Trial], outcome: str) -> RenderableType:
    rows = [(f"{words.SIGNS[outcome]} {trial.id}", words.reason(trial)) for trial in trials]
    table = _pairs(rows, max(len(name) for name, _ in rows) + 2)
    return Group(Text(title, style="bold"), Padding(table, style=STYLES[outcome]))


def _estimates(trials: Sequence[Trial]) -> list[RenderableType]:
    blocks: list[RenderableType] = [
        Text.assemble(("On several devices", "bold"), ("  estimated", "dim italic"))
    ]
    for trial in trials:
        blocks += _stacked([(trial.title, "; ".join(map(words.assumed, trial.assumed)))])
    return blocks
