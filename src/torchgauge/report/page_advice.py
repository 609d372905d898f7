"""The data of advice's page: every candidate with its outcome, and what to use.

Times are whole nanoseconds, sizes bytes, speed-ups and errors ratios; None is unknown.
"""

from __future__ import annotations

from typing import Any

from torchgauge.model.advice import Advice, Combination, SpeedUp, Trial
from torchgauge.report import advice_words as words
from torchgauge.report.page_overview import warnings
from torchgauge.visible import one_line


def overview(advice: Advice) -> dict[str, Any]:
    """Return the first screen of advice."""
    return {
        "facts": [[name, said, ""] for name, said in words.facts(advice)],
        "created": advice.environment.created,
        "figures": _figures(advice),
        "bound": None,
        "phases": None,
        "findings": [],
        "warnings": warnings(advice.all_warnings),
        "complete": True,
        "interrupted": advice.interrupted,
    }


def _figures(advice: Advice) -> list[dict[str, str]]:
    found = [(one.id, one.speed_up, words.memory(one)) for one in advice.accepted]
    if advice.best is not None and len(advice.best.candidates) > 1:
        found.insert(0, (" + ".join(advice.best.candidates), advice.best.speed_up, ""))
    return [
        {
            "label": name,
            "value": words.times(gain),
            "note": ", ".join(filter(None, (words.interval(gain), memory and f"memory {memory}"))),
            "how": "measured",
            "view": "advice",
        }
        for name, gain, memory in found
    ]


def advice(record: Advice) -> dict[str, Any]:
    """Return every candidate, what was combined, and what to use."""
    best = record.best
    return {
        "headline": words.headline(record),
        "minimum": record.minimum_gain,
        "rows": [_row(one) for outcome in words.TITLES for one in record.of(outcome)],  # type: ignore[arg-type]
        "combinations": [_combination(one) for one in record.combinations],
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
        "one_off": _ns(trial.one_off),
        "break_even": trial.break_even,
        "layers": [
            {"path": one.path, "change": one.change, "saved": _ns(-one.seconds)}
            for one in trial.layers
        ],
        "assumed": [
            [one.name, words.assumed(one).rpartition(": ")[2], one.by] for one in trial.assumed
        ],
    }


def _gain(found: SpeedUp | None) -> dict[str, Any]:
    if found is None:
        return dict.fromkeys(("speed_up", "low", "high", "before", "after", "blocks"))
    return {
        "speed_up": found.value,
        "low": found.interval.low,
        "high": found.interval.high,
        "before": _ns(found.before),
        "after": _ns(found.after),
        "blocks": found.blocks,
    }


def _combination(one: Combination) -> dict[str, Any]:
    return {
        "candidates": list(one.candidates),
        "against": list(one.against),
        "outcome": one.outcome,
        "reason": one_line(one.reason),
        **_gain(one.speed_up),
    }


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)
