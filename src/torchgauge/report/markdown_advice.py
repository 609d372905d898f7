"""Advice as Markdown: what held with its code, and the rest with its reason."""

from __future__ import annotations

from torchgauge.model.advice import Advice, Trial
from torchgauge.report import advice_words as words
from torchgauge.report.markdown_text import code, table, text
from torchgauge.report.sections import warning_text

NAMES = ("candidate", "speed-up:", "95 %:", "memory:", "error:", "once")


def render(advice: Advice) -> str:
    """Return the Markdown."""
    facts = "<br>".join(f"{name}: {text(said)}" for name, said in words.facts(advice))
    blocks = [f"### {code(words.title(advice))}: {text(words.headline(advice))}", facts]
    if accepted := advice.accepted:
        blocks += ["**What held (measured)**", table(NAMES, map(_row, accepted))]
    if best := words.together(advice):
        said = f"{words.times(best.speed_up)} {words.interval(best.speed_up)}"
        blocks.append(f"**What to use: {text(' + '.join(best.candidates))}, {text(said)}**")
        blocks += [_fence(best.environment, "sh"), _fence(best.code, "python")]
    for one in accepted:
        blocks += [f"{text(one.title)}", _fence(one.code, _language(one))]
        blocks += ["\n".join(f"- {text(said)}" for said in words.details(one))]
    blocks += _combinations(advice)
    others = [one for kind in ("rejected", "failed", "untried") for one in advice.of(kind)]
    if others:
        rows = [
            (f"{words.SIGNS[one.outcome]} {one.outcome}", code(one.id), text(words.reason(one)))
            for one in others
        ]
        blocks += [table(("", "candidate", "why"), rows)]
    blocks += _estimates(advice)
    blocks += [f"- {text(warning_text(one))} {code(one.id)}" for one in advice.warnings]
    if advice.interrupted:
        blocks.append("Interrupted before its end.")
    return "\n\n".join(block for block in blocks if block) + "\n"


def _row(trial: Trial) -> tuple[str, ...]:
    found = trial.speed_up
    cells = (
        words.times(found),
        words.interval(found),
        words.memory(trial),
        words.error(trial.output),
        words.one_off(trial),
    )
    return (code(trial.id), *map(text, cells))


def _fence(lines: str, language: str) -> str:
    return f"```{language}\n{lines}\n```" if lines else ""


def _language(trial: Trial) -> str:
    return "sh" if trial.language == "shell" else "python"


def _combinations(advice: Advice) -> list[str]:
    if not advice.combinations:
        return []
    lines = [
        f"- {words.SIGNS[one.outcome]} {code(' + '.join(one.candidates))}: {text(one.reason)}"
        for one in advice.combinations
    ]
    return ["**Together**", "\n".join(lines)]


def _estimates(advice: Advice) -> list[str]:
    rows = [
        (code(trial.id), text(one.name), text(words.assumed(one).rpartition(": ")[2]), text(one.by))
        for trial in advice.trials
        for one in trial.assumed
    ]
    if not rows:
        return []
    return ["**On several devices (estimated)**", table(("", "figure", "value:", "by"), rows)]
