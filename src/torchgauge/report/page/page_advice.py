"""The data of an advice's page: every candidate with its outcome, and the best combination.

Times are whole nanoseconds, sizes bytes, speed-ups and errors ratios; None is unknown.
"""

from __future__ import annotations

from typing import Any

from torchgauge.records.advice import Advice, Combination, SpeedUp, Trial
from torchgauge.report.content import advice as words
from torchgauge.report.page.page_document import figure, first_screen
from torchgauge.report.page.page_shorter import known_ns
from torchgauge.visible import one_line


def overview(advice: Advice) -> dict[str, Any]:
    """Return the first screen of advice."""
    return first_screen(
        ([name, text, ""] for name, text in words.facts(advice)),
        _figures(advice),
        recorded_warnings=advice.all_warnings,
        created=advice.environment.created,
        interrupted=advice.interrupted,
    )


def _figures(advice: Advice) -> list[dict[str, str]]:
    gains = [(trial.id, trial.speed_up, words.memory(trial)) for trial in advice.accepted]
    if advice.best is not None and len(advice.best.candidates) > 1:
        gains.insert(0, (" + ".join(advice.best.candidates), advice.best.speed_up, ""))
    return [
        figure(
            name,
            words.times(gain),
            ", ".join(filter(None, (words.interval(gain), memory and f"memory {memory}"))),
            view="advice",
        )
        for name, gain, memory in gains
    ]


def advice(record: Advice) -> dict[str, Any]:
    """Return every candidate, the combinations, and the best."""
    best = record.best
    return {
        "headline": words.headline(record),
        "minimum": record.minimum_gain,
        "rows": [
            _row(trial)
            for outcome in words.TITLES
            for trial in record.of(outcome)  # type: ignore[arg-type]
        ],
        "combinations": [_combination(combination) for combination in record.combinations],
        "best": None
        if best is None
        else {
            "candidates": list(best.candidates),
            "code": best.code,
            "environment": best.environment,
            **_gain(best.speed_up),
        },
    }


def _row(trial: Trial) -> dict[str, Any]:
    return {
        "id": trial.id,
        "title": trial.title,
        "outcome": trial.outcome,
        "reason": words.reason(trial),
        "code": trial.code,
        "language": trial.language,
        "goal": trial.goal,
        "how": trial.how,
        "stage": "confirmed" if trial.confirmation else "screened" if trial.screening else None,
        **_gain(trial.speed_up),
        "output": words.output(trial.output),
        "error": None if trial.output is None else trial.output.max_relative,
        "allowed": None if trial.output is None else trial.output.bound,
        "memory_before": trial.memory_before,
        "memory_after": trial.memory_after,
        "memory": words.memory(trial),
        "one_off": known_ns(trial.one_off),
        "break_even": trial.break_even,
        "layers": [
            {"path": gain.path, "change": gain.change, "saved": known_ns(-gain.seconds)}
            for gain in trial.layers
        ],
        "assumed": [
            [assumption.name, words.assumed(assumption).rpartition(": ")[2], assumption.by]
            for assumption in trial.assumed
        ],
    }


def _gain(speed_up: SpeedUp | None) -> dict[str, Any]:
    if speed_up is None:
        return dict.fromkeys(("speed_up", "low", "high", "before", "after", "blocks"))
    return {
        "speed_up": speed_up.value,
        "low": speed_up.interval.low,
        "high": speed_up.interval.high,
        "before": known_ns(speed_up.before),
        "after": known_ns(speed_up.after),
        "blocks": speed_up.blocks,
    }


def _combination(combination: Combination) -> dict[str, Any]:
    return {
        "candidates": list(combination.candidates),
        "against": list(combination.against),
        "outcome": combination.outcome,
        "reason": one_line(combination.reason),
        **_gain(combination.speed_up),
    }


def title(record: Advice) -> str:
    """Return the page's title."""
    return f"Advice for {record.target.name}"


PARTS = {"overview": overview, "advice": advice}
