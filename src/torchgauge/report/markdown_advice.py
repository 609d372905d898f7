"""Advice as Markdown: what held with its code, and the rest with its reason."""

from __future__ import annotations

from typing import LiteralString

from torchgauge.model.advice import Advice, Trial
from torchgauge.report import advice_words as words
from torchgauge.report.markdown_text import (
    Markdown,
    code,
    document,
    items,
    listing,
    markdown,
    table,
    text,
    together,
)
from torchgauge.report.sections import warning_text

NAMES = ("candidate", "speed-up:", "95 %:", "memory:", "error:", "once")


def render(advice: Advice) -> str:
    """Return the Markdown."""
    facts = together("<br>", (f"{name}: {said}" for name, said in words.facts(advice)))
    blocks = [markdown("### {}: {}", code(words.title(advice)), words.headline(advice)), facts]
    if accepted := advice.accepted:
        blocks += [markdown("**What held (measured)**"), table(NAMES, map(_row, accepted))]
    if best := words.together(advice):
        said = f"{words.times(best.speed_up)} {words.interval(best.speed_up)}"
        blocks.append(markdown("**What to use: {}, {}**", " + ".join(best.candidates), said))
        blocks += [listing(best.environment, "sh"), listing(best.code, "python")]
    for one in accepted:
        blocks += [text(one.title), listing(one.code, _language(one)), items(words.details(one))]
    blocks += _combinations(advice)
    others = [one for kind in ("rejected", "failed", "untried") for one in advice.of(kind)]
    if others:
        rows = [
            (f"{words.SIGNS[one.outcome]} {one.outcome}", code(one.id), words.reason(one))
            for one in others
        ]
        blocks += [table(("", "candidate", "why"), rows)]
    blocks += _estimates(advice)
    blocks.append(
        items(markdown("{} {}", warning_text(one), code(one.id)) for one in advice.warnings)
    )
    if advice.interrupted:
        blocks.append(markdown("Interrupted before its end."))
    return document(blocks)


def _row(trial: Trial) -> tuple[str, ...]:
    found = trial.speed_up
    cells = (
        words.times(found),
        words.interval(found),
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
            "{} {}: {}", words.SIGNS[one.outcome], code(" + ".join(one.candidates)), one.reason
        )
        for one in advice.combinations
    ]
    return [markdown("**Together**"), items(lines)]


def _estimates(advice: Advice) -> list[Markdown]:
    rows = [
        (code(trial.id), one.name, words.assumed(one).rpartition(": ")[2], one.by)
        for trial in advice.trials
        for one in trial.assumed
    ]
    if not rows:
        return []
    return [
        markdown("**On several devices (estimated)**"),
        table(("", "figure", "value:", "by"), rows),
    ]
