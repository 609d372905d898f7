"""The page of two recorded traces: what differs around them, what adds up to the change, where."""

from __future__ import annotations

import math
from typing import Any

from torchgauge import units
from torchgauge.model.comparison import Difference, Place
from torchgauge.model.trace_diff import Changes, TraceDiff
from torchgauge.report import page_comparison
from torchgauge.report.comparison import relative
from torchgauge.report.page_overview import warnings
from torchgauge.report.page_shorter import short, shorter
from torchgauge.report.page_tables import Column
from torchgauge.report.trace_diff import TITLES, said

MOST = 5_000  # rows of a table
FINDINGS = 3
_WHAT = Column("what", "what", "text")


def overview(diff: TraceDiff) -> dict[str, Any]:
    """Return the first screen: before any figure, what else may be why times differ."""
    sides = (("baseline", diff.baseline), ("current", diff.current))
    around = [one for one in diff.differences if one.timing]
    told = ", ".join(f"{one.name} ({_both(one)})" for one in around)
    return {
        "notices": [short(f"Times may differ for this alone: not the same {told}.")] * bool(around),
        "facts": [
            *([name, short(side.label), short(said(side))] for name, side in sides),
            *([one.name, short(_both(one)), ""] for one in diff.differences if not one.timing),
        ],
        "created": "",
        "figures": _figures(diff),
        "bound": None,
        "phases": None,
        "findings": _findings(diff),
        "warnings": warnings(diff.warnings),
        "complete": True,
        "interrupted": False,
    }


def _both(one: Difference) -> str:
    return f"{one.baseline or 'unknown'} → {one.current or 'unknown'}"


def _figures(diff: TraceDiff) -> list[dict[str, str]]:
    sides = (diff.baseline.window, diff.current.window)
    steps = max(diff.baseline.steps, diff.current.steps) > 1
    rows = [("time of a step" if steps else "window", *sides)]
    parts: dict[str, tuple[float, float]] = {}
    for one in diff.parts:
        old, new = parts.get(name := one.part.partition(":")[0], (0.0, 0.0))
        parts[name] = (old + one.baseline, new + one.current)
    rows += [(name, *both) for name, both in parts.items()]
    return [
        {
            "label": label,
            "value": units.time(new),
            "note": f"{_changed(old, new)}was {units.time(old)}",
            "how": "measured",
            "view": "contributions",
        }
        for label, old, new in rows
        if old or new
    ]


def _changed(old: float, new: float) -> str:
    return f"{relative(new / old - 1)}, " if old else ""


def _findings(diff: TraceDiff) -> list[dict[str, Any]]:
    """Return the layers that changed most; of a trace without layers the operators, the kernels."""
    places = next((one.places for one in _told(diff)), ())
    most = sorted(places, key=lambda one: -abs(one.contribution))[:FINDINGS]
    return [page_comparison.finding(one) for one in most if one.contribution]


def _told(diff: TraceDiff) -> list[Changes]:
    """Return the tables, that of layers only where there are any: the parts say all of a model."""
    return [one for one in diff.tables if one.kind != "layers" or len(one.places) > 1]


def contributions(diff: TraceDiff) -> list[dict[str, Any]] | None:
    """Return what adds up to each change: of the devices' window, and of the places of each kind.

    Whole nanoseconds.
    """
    made = []
    if diff.parts:
        bars = [[one.part, round(one.contribution * 1e9), None] for one in diff.parts]
        made.append(_chart("Devices", bars, 0, "", diff.window, "the devices' window"))
    made += [_places(one) for one in _told(diff)]
    return made or None


def _places(changes: Changes) -> dict[str, Any]:
    order = sorted(changes.places, key=lambda one: -abs(one.contribution))
    bars = [one for one in order[: page_comparison.BARS] if one.contribution]
    rest = changes.total - math.fsum(one.contribution for one in bars)
    shown = [[short(_name(one)), round(one.contribution * 1e9), None] for one in bars]
    return _chart(
        TITLES[changes.kind], shown, round(rest * 1e9), "all others", changes.total, "all of them"
    )


def _chart(
    title: str, bars: list[list[Any]], rest: int, others: str, total: float, whole: str
) -> dict[str, Any]:
    return {
        "title": title,
        "note": "",
        "bars": bars,
        "rest": rest,
        "others": others,
        "total": round(total * 1e9),
        "whole": whole,
        "unit": "delta",
    }


def _name(one: Place) -> str:
    return one.name or "(the model itself)"


def tables(diff: TraceDiff) -> list[dict[str, Any]] | None:
    """Return layers, operators, shapes and kernels with both sides' figures."""
    made = [
        shorter(
            page_comparison.table(one.kind, one.places, {_WHAT: [_what(p) for p in one.places]}),
            MOST,
        )
        for one in _told(diff)
        if one.places
    ]
    return made or None


def _what(one: Place) -> str:
    if one.appeared or one.vanished:
        return "appeared" if one.appeared else "vanished"
    return "slower" if one.contribution > 0 else "faster" if one.contribution < 0 else "same"
