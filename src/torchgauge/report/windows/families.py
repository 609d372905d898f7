"""Windows as families of metrics, which text and protobuf show alike.

Families of metrics as Prometheus' protobuf, with native histograms, encoded by hand.

The messages are those of `io/prometheus/client/metrics.proto` in Prometheus' `client_model`: few
fields, for which a library would be one more dependency.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from torchgauge.analyze.monitoring.buckets import bounds_of
from torchgauge.records.headline.figure import Unit
from torchgauge.records.monitoring.histogram import Histogram
from torchgauge.records.monitoring.window import (
    BATCH,
    FIRST_BYTE,
    LATENCY,
    LAYER,
    MEMORY,
    QUEUE,
    REQUEST,
    TOKENS,
    UNREADABLE,
    Window,
)

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]

PREFIX = "torchgauge"
UNITS: dict[Unit, str] = {
    "": "",
    "s": "seconds",
    "B": "bytes",
    "1/s": "per_second",
    "B/s": "bytes_per_second",
    "ratio": "ratio",
    "W": "watts",
    "J": "joules",
    "Hz": "hertz",
}
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
TEXTS = {
    LATENCY: "Time of a call",
    REQUEST: "Time of an HTTP request at the server",
    QUEUE: "Time that a request waited before the server took it",
    FIRST_BYTE: "Time until a response began",
    LAYER: "Time of a layer in calls whose layers were timed",
    BATCH: "Samples of a call",
    TOKENS: "Tokens of a call",
    MEMORY: "Memory in use",
    UNREADABLE: "Files of the monitor folder whose counts are missing here",
    "alerts": "Alert rules that a live series breaks",
    "history_alerts": "Alert rules that the newest runs of a target break",
    "history_runs": "Runs of a target in the history",
    "history_run_time": "When the newest run of a target was made, since 1970",
    "serve_errors": "What the server could not read",
}
# Prometheus' own labels of buckets and summaries.
_RESERVED = ("le", "quantile")


class Distribution(NamedTuple):
    """A histogram, and classic buckets for readers that know no native ones.

    Attributes:
        histogram: All of it.
        buckets: Upper bounds, and how many values do not exceed each.
    """

    histogram: Histogram
    buckets: tuple[tuple[float, int], ...]


class Sample(NamedTuple):
    """One metric of a family: its labels, and a number or a distribution."""

    labels: Labels
    value: float | Distribution


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
    text = TEXTS.get(series, f"Values of the series {series}")
    readings = _distinct((labels(window), window.last or 0.0) for window in group)
    family = gauges(series, unit, text, readings)
    if reads:
        yield family
        return
    distributions = _distinct((labels(window), _distribution(window)) for window in group)
    yield family._replace(kind="histogram", samples=distributions)
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


def gauges(name: str, unit: Unit, text: str, samples: Iterable[Sample]) -> Family:
    """Return a family of values that go up and down, with the base unit in its name."""
    full_name = "_".join(filter(None, (PREFIX, name, UNITS[unit])))
    return Family(full_name, "gauge", UNITS[unit], text, tuple(samples))


def _distribution(window: Window) -> Distribution:
    bounds = bounds_of(window)
    counts = window.histogram.counts_to(bounds, of_integers=window.unit == "")
    return Distribution(window.histogram, tuple(zip(bounds, counts, strict=True)))


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


def _distinct(samples: Iterable[tuple[Labels, float | Distribution]]) -> tuple[Sample, ...]:
    return tuple(Sample(*pair) for pair in dict(samples).items())


def _identifier(name: str) -> str:
    return re.sub(r"^(?=\d)|[^a-zA-Z0-9_]", "_", name) or "_"


OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(families: Iterable[Family], *, plain: bool = False) -> str:
    """Return the families as text; distributions have classic buckets.

    The older format, `plain`, names a counter with its suffix, and has neither units nor an end.
    """
    lines: list[str] = []
    for family in families:
        name = family.name + "_total" * (plain and family.kind == "counter")
        lines.append(f"# TYPE {name} {family.kind}")
        if family.unit and not plain:
            lines.append(f"# UNIT {name} {family.unit}")
        lines.append(f"# HELP {name} {family.text.translate(ESCAPES)}.")
        for sample in family.samples:
            lines += _lines(family, sample)
    return "\n".join([*lines, *([] if plain else ["# EOF"]), ""])


def _lines(family: Family, sample: Sample) -> Iterator[str]:
    name, value = family.name, sample.value
    if not isinstance(value, Distribution):
        suffix = "_total" if family.kind == "counter" else ""
        yield f"{name}{suffix}{_labels(sample.labels)} {value!r}"
        return
    histogram, own = value.histogram, _labels((*sample.labels, ("le", "")))
    for bound, count in (*value.buckets, ("+Inf", histogram.count)):
        yield f'{name}_bucket{own[:-2]}{bound}"}} {count}'
    yield f"{name}_count{_labels(sample.labels)} {histogram.count}"
    yield f"{name}_sum{_labels(sample.labels)} {histogram.sum!r}"


def _labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{value.translate(ESCAPES)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


CONTENT_TYPE = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)
_TYPES = {"counter": 0, "gauge": 1, "histogram": 4}
# A reader takes a histogram without values for a native one by this; it is the usual one.
_ZERO_THRESHOLD = 2.0**-128


def metrics_protobuf(families: Iterable[Family]) -> bytes:
    """Return one MetricFamily after the other, each after its length."""
    messages = map(_family, families)
    return b"".join(_varint(len(message)) + message for message in messages)


def _family(family: Family) -> bytes:
    suffix = "_total" if family.kind == "counter" else ""
    return b"".join(
        (
            _bytes(1, (family.name + suffix).encode()),
            _bytes(2, f"{family.text}.".encode()),
            _number(3, _TYPES[family.kind]),
            *(_bytes(4, _metric(family, sample)) for sample in family.samples),
            _bytes(5, family.unit.encode()) if family.unit else b"",
        )
    )


def _metric(family: Family, sample: Sample) -> bytes:
    pairs = (_bytes(1, name.encode()) + _bytes(2, text.encode()) for name, text in sample.labels)
    labels = b"".join(_bytes(1, pair) for pair in pairs)
    if isinstance(sample.value, Distribution):
        return labels + _bytes(7, b"".join(_histogram(*sample.value)))
    field = 3 if family.kind == "counter" else 2
    return labels + _bytes(field, _double(1, sample.value))


def _histogram(histogram: Histogram, cumulated: Iterable[tuple[float, int]]) -> Iterator[bytes]:
    yield _number(1, histogram.count)
    yield _double(2, histogram.sum)
    for bound, count in cumulated:
        yield _bytes(3, _number(1, count) + _double(2, bound))
    yield _number(5, _zigzag(histogram.scale))
    yield _double(6, _ZERO_THRESHOLD)
    yield _number(7, histogram.zero_count)
    # Prometheus numbers a bucket by its upper bound, OpenTelemetry by its lower one.
    spans: list[tuple[int, list[int]]] = []
    end = 0
    for index, count in histogram.buckets():
        if not spans or index + 1 > end:
            spans.append((index + 1 - end, []))
        spans[-1][1].append(count)
        end = index + 2
    previous = 0
    for gap, counts in spans:
        yield _bytes(12, _number(1, _zigzag(gap)) + _number(2, len(counts)))
    for _, counts in spans:
        for count in counts:
            yield _number(13, _zigzag(count - previous))
            previous = count


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _zigzag(value: int) -> int:
    return 2 * value if value >= 0 else -2 * value - 1


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def window_scalars(windows: Iterable[Window]) -> dict[str, float]:
    """Return rate, quantiles, mean and share of errors of each series that are known.

    Names are like `torchgauge/latency/p99_seconds`, with the labels between, but for the monitor's.
    """
    scalars: dict[str, float] = {}
    for window in windows:
        labels = [f"{name}={value}" for name, value in window.key[1] if name != "monitor"]
        group = "/".join((PREFIX, window.series, *(re.sub(r"[^\w./ -]", "_", p) for p in labels)))
        unit = UNITS[window.unit]
        suffix = f"_{unit}" if unit else ""
        values = {f"{name}{suffix}": window.histogram.quantile(q) for name, q in QUANTILES.items()}
        values |= {f"mean{suffix}": window.histogram.mean, "per_second": window.rate}
        if window.last is not None:
            values = {f"last{suffix}": window.last}
        elif window.errors:
            values["error_share"] = window.error_share
        scalars |= {f"{group}/{name}": v for name, v in values.items() if v is not None}
    return scalars
