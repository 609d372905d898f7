"""The page of a comparison: figures with their changes, what adds up to the change, the places."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torchgauge import units
from torchgauge.model.comparison import Change, Comparison, Place
from torchgauge.report import page_tables
from torchgauge.report.comparison import (
    changed,
    corrected,
    interval,
    relative,
    said,
    signed,
)
from torchgauge.report.page_overview import warnings
from torchgauge.report.page_shorter import short
from torchgauge.report.page_tables import Column

CARDS = ("latency", "throughput", "memory", "params", "flops")
BARS = 12
PLACES = (
    Column("name", "", "text"),
    Column("type", "type", "text"),
    Column("baseline", "baseline", "time"),
    Column("current", "current", "time"),
    Column("contribution", "adds", "delta"),
    Column("change", "change", "change"),
    Column("low", "at least", "change"),
    Column("high", "at most", "change"),
    Column("proven", "proven", "text"),
    Column("baseline_calls", "calls before", "count"),
    Column("current_calls", "calls now", "count"),
    Column("baseline_flops", "FLOPs before", "count"),
    Column("current_flops", "FLOPs now", "count"),
    Column("baseline_bytes", "bytes before", "bytes"),
    Column("current_bytes", "bytes now", "bytes"),
)


def overview(comparison: Comparison) -> dict[str, Any]:
    """Return the first screen of a comparison."""
    sides = (("baseline", comparison.baseline), ("current", comparison.current))
    facts = [[name, side.label, said(side)] for name, side in sides]
    known = [change for name in CARDS if (change := comparison.change_of(name)) is not None]
    return {
        "facts": facts,
        "created": comparison.current.created,
        "figures": [_card(change) for change in known],
        "bound": None,
        "phases": None,
        "findings": [finding(place) for place in changed(comparison.layers, comparison, 3)],
        "warnings": warnings(comparison.all_warnings),
        "complete": True,
        "interrupted": False,
    }


def _card(change: Change) -> dict[str, str]:
    parts = [relative(change.change), f"was {units.amount(change.baseline, change.unit)}"]
    if change.interval is not None:
        parts.insert(1, f"95 % in {interval(change)}")
    parts += [corrected(change), change.judgement]
    return {
        "label": change.metric,
        "value": units.amount(change.current, change.unit),
        "note": ", ".join(part for part in parts if part),
        "how": change.how,
        "view": "changes",
    }


def finding(place: Place) -> dict[str, Any]:
    """Return a place that changed as the first screen says it."""
    name = place.name or "the model itself"
    what = "appeared" if place.appeared else "vanished" if place.vanished else ""
    how = what or f"{relative(place.change) or 'other work'}"
    sure = {True: "proven", False: "not proven", None: "not tested"}[place.significant]
    text = f"{signed(place.contribution)} of the step; {place.type or place.kind}, {sure}."
    title = short(f"{name}: {how}")
    return {"title": title, "text": short(text), "view": "tables", "node": None, "search": ""}


def changes(comparison: Comparison) -> dict[str, Any]:
    """Return every metric with its change and interval, and what differs around the runs."""
    rows = [
        {
            "metric": one.metric,
            "baseline": units.amount(one.baseline, one.unit),
            "current": units.amount(one.current, one.unit),
            "change": one.change,
            "text": relative(one.change),
            "interval": None if one.interval is None else [one.interval.low, one.interval.high],
            "range": interval(one),
            "judgement": one.judgement,
            "how": one.how,
            "note": one.reason or one.method,
            "bounds": [],
        }
        for one in comparison.changes
    ]
    differences = [
        [
            f"{one.part}: {one.name}",
            f"{one.baseline} → {one.current}",
            "times cannot be compared" if one.timing else "",
        ]
        for one in comparison.differences
    ]
    return {"rows": rows, "differences": differences, "paired": comparison.paired}


def contributions(comparison: Comparison) -> list[dict[str, Any]] | None:
    """Return what adds up to the step's change, in nanoseconds; None without trees."""
    if comparison.step_change is None:
        return None
    ordered = sorted(comparison.layers, key=lambda one: -abs(one.contribution))
    bars = [one for one in ordered[:BARS] if one.contribution]
    rest = comparison.step_change - math.fsum(one.contribution for one in bars)
    others = len(comparison.layers) - len(bars)
    tested = comparison.places_tested
    tested = f"{tested[0].upper()}{tested[1:]}." if tested else ""
    return [
        {
            "title": "",
            "note": f"A step's own time by layer. {tested}",
            "bars": [
                [one.name or "the model itself", round(one.contribution * 1e9), one.significant]
                for one in bars
            ],
            "rest": round(rest * 1e9),
            "others": f"{others} other layers, and time in no layer",
            "total": round(comparison.step_change * 1e9),
            "whole": "the step as a whole",
            "unit": "delta",
        }
    ]


def tables(comparison: Comparison) -> list[dict[str, Any]] | None:
    """Return layers, operators and kernels with both sides' figures."""
    made = [
        table(name, places)
        for name, places in (
            ("layers", comparison.layers),
            ("operators", comparison.operators),
            ("kernels", comparison.kernels),
        )
        if places
    ]
    return made or None


def table(
    name: str,
    places: tuple[Place, ...],
    more: Mapping[Column, list[Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return a table of places, with columns of their own after the names."""
    found: dict[str, list[Any]] = {
        field: [getattr(one, field) for one in places]
        for field in (
            "type", "baseline", "current", "contribution", "change", "baseline_calls",
            "current_calls", "baseline_flops", "current_flops", "baseline_bytes", "current_bytes",
        )
    }  # fmt: skip
    found["name"] = [one.name or "(the model itself)" for one in places]
    found["low"] = [one.interval and one.interval.low for one in places]
    found["high"] = [one.interval and one.interval.high for one in places]
    sure = {True: "yes", False: "no", None: ""}
    found["proven"] = [sure[one.significant] for one in places]
    found |= {column.key: values for column, values in more.items()}
    columns = [PLACES[0]._replace(title=name.removesuffix("s")), *more, *PLACES[1:]]
    return page_tables.table(name, columns, found)
