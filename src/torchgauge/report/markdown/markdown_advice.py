"""Advice as Markdown: accepted changes with their code, and others with their reason."""

from __future__ import annotations

from typing import LiteralString

from torchgauge.records.advice import Advice, Trial
from torchgauge.report.content import advice_words as words
from torchgauge.report.content.sections import warning_text
from torchgauge.report.markdown.markdown_text import (
    Markdown,
    code,
    document,
    items,
    join,
    listing,
    markdown,
    table,
    text,
)

NAMES = ("candidate", "speed-up:", "95 %:", "memory:", "error:", "once")


def render(advice: Advice) -> str:
    """Return the Markdown."""
    facts = join("<br>", (f"{name}: {value}" for name, value in words.facts(advice)))
    blocks = [markdown("### {}: {}", code(words.title(advice)), words.headline(advice)), facts]
    if accepted := advice.accepted:
        blocks += [markdown("**What held (measured)**"), table(NAMES, map(_row, accepted))]
    if best := words.best_combination(advice):
        speed_up = f"{words.times(best.speed_up)} {words.interval(best.speed_up)}"
        blocks.append(markdown("**What to use: {}, {}**", " + ".join(best.candidates), speed_up))
        blocks += [listing(best.environment, "sh"), listing(best.code, "python")]
    for trial in accepted:
        blocks += [text(trial.title), listing(trial.code, _language(trial))]
        blocks.append(items(words.details(trial)))
    blocks += _combinations(advice)
    other_trials = (*advice.of("rejected"), *advice.of("failed"), *advice.of("untried"))
    if other_trials:
        rows = [
            (f"{words.SIGNS[trial.outcome]} {trial.outcome}", code(trial.id), words.reason(trial))
            for trial in other_trials
        ]
        blocks += [table(("", "candidate", "why"), rows)]
    blocks += _estimates(advice)
    blocks.append(
        items(
            markdown("{} {}", warning_text(warning), code(warning.id))
            for warning in advice.warnings
        )
    )
    if advice.interrupted:
        blocks.append(markdown("Interrupted before its end."))
    return document(blocks)


def _row(trial: Trial) -> tuple[str, ...]:
    speed_up = trial.speed_up
    cells = (
        words.times(speed_up),
        words.interval(speed_up),
        words.memory(trial),
        words.error(trial.output),
        words.one_off(trial),
    )
    return (code(trial.id), *cells)


def _language(trial: Trial) -> LiteralString:
    return "sh" if trial.language == "shell" else "python"


def _combinations(advice: Advice) -> list[Markdown]:
    if not advice.combinations:
        return []
    lines = [
        markdown(
            "{} {}: {}",
            words.SIGNS[combination.outcome],
            code(" + ".join(combination.candidates)),
            combination.reason,
        )
        for combination in advice.combinations
    ]
    return [markdown("**Together**"), items(lines)]


def _estimates(advice: Advice) -> list[Markdown]:
    rows = [
        (code(trial.id), estimate.name, words.assumed(estimate).rpartition(": ")[2], estimate.by)
        for trial in advice.trials
        for estimate in trial.assumed
    ]
    if not rows:
        return []
    return [
        markdown("**On several devices (estimated)**"),
        table(("", "figure", "value:", "by"), rows),
    ]
