"""The page of a comparison: figures with their changes, contributions by layer, tables."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from torchgauge.records.comparison import Change, ComparedStage, Comparison, Place
from torchgauge.report.content import comparison as content
from torchgauge.report.content.comparison import (
    corrected_change,
    interval,
    not_comparable,
    notable_places,
    relative,
    side_amount,
    side_details,
    signed,
    verdict,
)
from torchgauge.report.content.document import Column, Unit
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_document import figure, finding, first_screen
from torchgauge.report.page.page_shorter import short

CARDS = ("latency", "throughput", "ttft", "tpot", "tokens", "memory", "params", "flops")
BARS = 12
PROVEN = {True: "yes", False: "no", None: ""}
PLACES = (
    Column("name", "", "text", lambda place: place.name or "(the model itself)"),
    Column("type", "type", "text"),
    Column("baseline", "baseline", "time"),
    Column("current", "current", "time"),
    Column("contribution", "adds", "delta"),
    Column("change", "change", "change"),
    Column("low", "at least", "change", lambda place: place.interval and place.interval.low),
    Column("high", "at most", "change", lambda place: place.interval and place.interval.high),
    Column("proven", "proven", "text", lambda place: PROVEN[place.significant]),
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
    facts = [[name, side.label, side_details(side)] for name, side in sides]
    if comparison.outputs is not None:
        facts.append(list(content.outputs_fact(comparison.outputs)))
    headline_changes = [
        change for name in CARDS if (change := comparison.change_of(name)) is not None
    ]
    notice = not_comparable(comparison.differences)
    return first_screen(
        facts,
        map(_card, headline_changes),
        (
            place_finding(place, getattr(compared, "label", "the step"))
            for compared in comparison.compared_trees
            for place in notable_places(compared.layers, compared, 3)
        ),
        comparison.all_warnings,
        created=comparison.current.created,
        notices=[short(notice)] * bool(notice),
    )


def _card(change: Change) -> dict[str, str]:
    parts = [relative(change.change), _was(change)]
    if change.interval is not None:
        parts.insert(1, f"95 % in {interval(change)}")
    parts += [corrected_change(change), verdict(change)]
    note = ", ".join(part for part in parts if part)
    value = side_amount(change.current, change)
    return figure(change.label, value, note, change.how, "changes")


def _was(change: Change) -> str:
    if change.baseline is None:
        return "of the baseline not recorded"
    return f"was {side_amount(change.baseline, change)}"


def place_finding(place: Place, tree: str = "the step") -> dict[str, Any]:
    """Return a place that changed as the first screen says it; `tree` is what it is a part of."""
    name = place.name or "the model itself"
    appearance = "appeared" if place.appeared else "vanished" if place.vanished else ""
    unrelated = "other work" if place.work_changed else "on both sides"
    how = appearance or relative(place.change) or unrelated
    sure = {True: "proven", False: "not proven", None: "not tested"}[place.significant]
    text = f"{signed(place.contribution)} of {tree}; {place.type or place.kind}, {sure}."
    return finding(short(f"{name}: {how}"), short(text), "tables")


def changes(comparison: Comparison) -> dict[str, Any]:
    """Return every metric with its change and interval, and the differences of environment."""
    rows = [
        {
            "metric": change.label,
            "baseline": side_amount(change.baseline, change),
            "current": side_amount(change.current, change),
            "change": change.change,
            "text": relative(change.change),
            "interval": None
            if change.interval is None
            else [change.interval.low, change.interval.high],
            "range": interval(change),
            "judgement": verdict(change),
            "how": change.how,
            "note": change.reason or change.method,
            "bounds": [],
        }
        for change in comparison.changes
    ]
    differences = [
        [
            f"{difference.part}: {difference.name}",
            f"{difference.baseline} → {difference.current}",
            "times cannot be compared" if difference.timing else "",
        ]
        for difference in comparison.differences
    ]
    return {"rows": rows, "differences": differences, "paired": comparison.paired}


def contributions(comparison: Comparison) -> list[dict[str, Any]] | None:
    """Return each layer's share of the step's change, in nanoseconds; None without trees."""
    charts = [
        _bars(compared, compared.step_change)
        for compared in comparison.compared_trees
        if compared.step_change is not None
    ]
    return charts or None


def _bars(compared: Comparison | ComparedStage, total: float) -> dict[str, Any]:
    name = compared.label if isinstance(compared, ComparedStage) else ""
    ordered = sorted(compared.layers, key=lambda place: -abs(place.contribution))
    largest = [place for place in ordered[:BARS] if place.contribution]
    remainder = total - math.fsum(place.contribution for place in largest)
    other_count = len(compared.layers) - len(largest)
    tested = compared.places_tested
    tested = f"{tested[0].upper()}{tested[1:]}." if tested else ""
    bars = [
        [place.name or "the model itself", round(place.contribution * 1e9), place.significant]
        for place in largest
    ]
    other_layers = f"{other_count} other layers, and time in no layer"
    return chart(
        f"{name[:1].upper()}{name[1:]}",
        bars,
        (round(remainder * 1e9), other_layers if other_count else "time in no layer"),
        (round(total * 1e9), "the step as a whole"),
        note=f"A step's own time by layer. {tested}",
    )


def chart(
    title: str,
    bars: list[list[Any]],
    remainder: tuple[int, str],
    total: tuple[int, str],
    note: str = "",
    unit: Unit = "delta",
) -> dict[str, Any]:
    """Return a chart of contributions: the largest, what the others add, and the sum."""
    return {
        "title": title,
        "note": note,
        "bars": bars,
        "rest": remainder[0],
        "others": remainder[1],
        "total": total[0],
        "whole": total[1],
        "unit": unit,
    }


def tables(comparison: Comparison) -> list[dict[str, Any]] | None:
    """Return layers, operators and kernels with both sides' figures."""
    listed_tables = [
        table(name, places, stage=getattr(compared, "stage", ""))
        for compared in comparison.compared_trees
        for name in ("layers", "operators", "kernels")
        if (places := getattr(compared, name))
    ]
    return listed_tables or None


def table(
    name: str, places: tuple[Place, ...], further_columns: tuple[Column, ...] = (), stage: str = ""
) -> dict[str, Any]:
    """Return a table of places, of a stage of generation by its name.

    It has columns of their own after the names.
    """
    columns = [
        dataclasses.replace(PLACES[0], title=name.removesuffix("s")),
        *further_columns,
        *PLACES[1:],
    ]
    page_table = page_tables.records_table(f"{name}, {stage}" if stage else name, columns, places)
    return page_tables.with_kernel_labels(page_table) if name == "kernels" else page_table


def title(comparison: Comparison) -> str:
    """Return the page's title."""
    names = content.title(comparison)
    return names if " → " in names else f"{names}, compared"


PARTS = {"overview": overview, "changes": changes, "contributions": contributions, "tables": tables}
