"""The page of two recorded traces: differences of environment, contributions, tables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torchgauge import units
from torchgauge.records.comparison import Difference, Place
from torchgauge.records.trace.trace_diff import Changes, TraceDiff
from torchgauge.report.content.comparison import not_comparable, relative
from torchgauge.report.content.document import Column
from torchgauge.report.content.trace import TITLES, diff_title, side_details
from torchgauge.report.page import page_comparison
from torchgauge.report.page.page_comparison import chart
from torchgauge.report.page.page_document import figure, first_screen
from torchgauge.report.page.page_shorter import short, shortened_table
from torchgauge.report.page.timeline.page_timeline import two_timelines
from torchgauge.report.tables.kernel_names import kernel_labels

MAX_ROWS = 5_000  # of a table
FINDINGS = 3


def overview(diff: TraceDiff) -> dict[str, Any]:
    """Return the first screen: first of all, what makes the times not comparable."""
    sides = (("baseline", diff.baseline), ("current", diff.current))
    notice = not_comparable(diff.differences)
    return first_screen(
        [
            *([name, short(side.label), short(side_details(side))] for name, side in sides),
            *(
                [f"{difference.part}: {difference.name}", short(_both_sides(difference)), ""]
                for difference in diff.differences
            ),
        ],
        _figures(diff),
        _findings(diff),
        diff.warnings,
        notices=[short(notice)] * bool(notice),
    )


def _both_sides(difference: Difference) -> str:
    return f"{difference.baseline or 'unknown'} → {difference.current or 'unknown'}"


def _figures(diff: TraceDiff) -> list[dict[str, str]]:
    sides = (diff.baseline.window, diff.current.window)
    steps = max(diff.baseline.steps, diff.current.steps) > 1
    rows = [("time of a step" if steps else "window", *sides)] * bool(diff.parts)
    parts: dict[str, tuple[float, float]] = {}
    for part in diff.parts:
        old, new = parts.get(name := part.part.partition(":")[0], (0.0, 0.0))
        parts[name] = (old + part.baseline, new + part.current)
    rows += [(name, *times) for name, times in parts.items()]
    return [
        figure(
            label,
            units.time(new),
            f"{_changed(old, new) if diff.timing_comparable else ''}was {units.time(old)}",
            view="contributions",
        )
        for label, old, new in rows
        if old or new
    ]


def _changed(old: float, new: float) -> str:
    return f"{relative(new / old - 1)}, " if old else ""


def _findings(diff: TraceDiff) -> list[dict[str, Any]]:
    """Return the layers that changed most; without layers, the operators or kernels."""
    places = next((changes.places for changes in _listed_changes(diff)), ())
    largest = sorted(places, key=lambda place: -abs(place.contribution))[:FINDINGS]
    return [page_comparison.place_finding(place) for place in largest if place.contribution]


def _listed_changes(diff: TraceDiff) -> list[Changes]:
    """Return the tables, without layers if the model is the only one: the parts cover it."""
    return [
        changes for changes in diff.tables if changes.kind != "layers" or len(changes.places) > 1
    ]


def contributions(diff: TraceDiff) -> list[dict[str, Any]] | None:
    """Return a chart for the devices' window and for each kind of place.

    Whole nanoseconds.
    """
    charts = []
    if diff.parts:
        total = round(diff.window * 1e9), "the devices' window"
        bars = _bars((part.part, part.contribution) for part in diff.parts)
        charts.append(chart("Devices", bars, (0, ""), total))
    if any(change.contribution for change in diff.delays):
        bars = _bars((change.cause, change.contribution) for change in diff.delays)
        total = round(math.fsum(change.contribution for change in diff.delays) * 1e9), "all of it"
        charts.append(chart("What kept the host from launching", bars, (0, ""), total))
    charts += [_places_chart(changes) for changes in _listed_changes(diff)]
    return charts or None


def _places_chart(changes: Changes) -> dict[str, Any]:
    order = sorted(changes.places, key=lambda place: -abs(place.contribution))
    bars = [place for place in order[: page_comparison.BARS] if place.contribution]
    remainder = changes.total - math.fsum(place.contribution for place in bars)
    names = [place.name or "(the model itself)" for place in bars]
    labels = kernel_labels(names) if changes.kind == "kernels" else names
    seconds = (place.contribution for place in bars)
    return chart(
        TITLES[changes.kind],
        _bars(zip(map(short, labels), seconds, strict=True)),
        (round(remainder * 1e9), "all others"),
        (round(changes.total * 1e9), "all of them"),
    )


def _bars(parts: Iterable[tuple[str, float]]) -> list[list[Any]]:
    return [[label, round(seconds * 1e9), None] for label, seconds in parts]


def tables(diff: TraceDiff) -> list[dict[str, Any]] | None:
    """Return layers, operators, shapes and kernels with both sides' figures."""
    kind = Column("what", "what", "text", lambda place: _change_kind(place, diff))
    listed_tables = [
        shortened_table(page_comparison.table(changes.kind, changes.places, (kind,)), MAX_ROWS)
        for changes in _listed_changes(diff)
        if changes.places
    ]
    return listed_tables or None


def _change_kind(place: Place, diff: TraceDiff) -> str:
    if place.appeared or place.vanished:
        return "appeared" if place.appeared else "vanished"
    if not diff.timing_comparable:
        return "other work" if place.work_changed else "same work"
    return "slower" if place.contribution > 0 else "faster" if place.contribution < 0 else "same"


title = diff_title
PARTS = {
    "overview": overview,
    "contributions": contributions,
    "timelines": two_timelines,
    "tables": tables,
}
