"""Windows as families of metrics, which text and protobuf show alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from torchgauge.records.headline.figure import Unit
from torchgauge.records.monitoring.histogram import PER_OCTAVE, Histogram, boundary
from torchgauge.records.monitoring.window import (
    BATCH,
    FIRST_BYTE,
    LATENCY,
    LAYER,
    MEMORY,
    QUEUE,
    REQUEST,
    TOKENS,
    Window,
)
from torchgauge.report.export.openmetrics import UNITS

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]

PREFIX = "torchgauge"
TEXTS = {
    LATENCY: "Time of a call",
    REQUEST: "Time of an HTTP request at the server",
    QUEUE: "Time that a request waited before the server took it",
    FIRST_BYTE: "Time until a response began",
    LAYER: "Time of a layer in calls whose layers were timed",
    BATCH: "Samples of a call",
    TOKENS: "Tokens of a call",
    MEMORY: "Memory in use",
}
# Upper bounds of classic buckets, as powers of two, by unit: 8 µs to 64 s, 1 to a million.
_OCTAVES: dict[Unit, range] = {"s": range(-17, 7), "": range(21)}
_OTHER_OCTAVES = range(0, 41, 2)
# Prometheus' own labels of buckets and summaries.
_RESERVED = ("le", "quantile")


class Sample(NamedTuple):
    """One metric of a family: its labels, and a number or a distribution."""

    labels: Labels
    value: float | Histogram


class Family(NamedTuple):
    """Metrics of one name.

    Attributes:
        name: Without the suffix of counters, `_total`.
        kind: What the samples are.
        unit: The last part of the name; empty without unit.
        text: What it is.
        samples: Each of other labels.
    """

    name: str
    kind: Kind
    unit: str
    text: str
    samples: tuple[Sample, ...]


def families(windows: Iterable[Window]) -> list[Family]:
    """Return the families of windows that hold everything since the processes began.

    A series of events has its distribution, the number of events, and errors by kind; one of
    readings its last value.
    """
    by_series: dict[tuple[str, Unit, bool], list[Window]] = {}
    for window in windows:
        key = _identifier(window.series), window.unit, window.last is not None
        by_series.setdefault(key, []).append(window)
    result: dict[str, Family] = {}
    for (series, unit, reads), group in sorted(by_series.items()):
        for family in _families(series, unit, group, reads=reads):
            result.setdefault(family.name, family)  # a hostile name may resemble another
    return list(result.values())


def _families(series: str, unit: Unit, group: list[Window], *, reads: bool) -> Iterator[Family]:
    suffix = UNITS[unit]
    name = "_".join(filter(None, (PREFIX, series, suffix)))
    text = TEXTS.get(series, f"Values of the series {series}")
    if reads:
        samples = _distinct((labels(window), window.last or 0.0) for window in group)
        yield Family(name, "gauge", suffix, text, samples)
        return
    distributions = _distinct((labels(window), window.histogram) for window in group)
    yield Family(name, "histogram", suffix, text, distributions)
    events = _distinct((labels(window), float(window.count)) for window in group)
    noun = f"Events of the series {series}"
    yield Family(f"{PREFIX}_{series}_events", "counter", "", f"{noun}, untimed ones too", events)
    errors = _distinct(
        (_sorted({**window.labels, "kind": kind}), float(number))
        for window in group
        for kind, number in window.errors.items()
    )
    if errors:
        yield Family(f"{PREFIX}_{series}_errors", "counter", "", f"{noun} that failed", errors)


def classic_buckets(histogram: Histogram, unit: str) -> list[tuple[float, int]]:
    """Return upper bounds and how many values do not exceed them: exact, at powers of two."""
    units = {suffix: unit for unit, suffix in UNITS.items()}
    octaves = _OCTAVES.get(units[unit], _OTHER_OCTAVES)
    buckets, cumulated = list(histogram.buckets()), []
    position, count = 0, histogram.zero_count
    for octave in octaves:
        while position < len(buckets) and buckets[position][0] < octave * PER_OCTAVE:
            count += buckets[position][1]
            position += 1
        cumulated.append((boundary(octave * PER_OCTAVE), count))
    return cumulated


def labels(window: Window) -> Labels:
    """Return a window's labels with names that every reader of metrics takes."""
    return _sorted(window.labels)


def _sorted(pairs: dict[str, str]) -> Labels:
    return tuple(sorted({_label(name): value for name, value in pairs.items()}.items()))


def _label(name: str) -> str:
    identifier = _identifier(name)
    return (
        f"label_{identifier}" if identifier in _RESERVED or identifier[:2] == "__" else identifier
    )


def _distinct(samples: Iterable[tuple[Labels, float | Histogram]]) -> tuple[Sample, ...]:
    return tuple(Sample(*pair) for pair in dict(samples).items())


def _identifier(name: str) -> str:
    return re.sub(r"^(?=\d)|[^a-zA-Z0-9_]", "_", name) or "_"
