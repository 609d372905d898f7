"""Families of metrics as Prometheus' protobuf, with native histograms, encoded by hand.

The messages are those of `io/prometheus/client/metrics.proto` in Prometheus' `client_model`: few
fields, for which a library would be one more dependency.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from torchgauge.records.monitoring.histogram import Histogram
from torchgauge.report.windows.families import Family, Sample, classic_buckets

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
    if isinstance(sample.value, Histogram):
        return labels + _bytes(7, b"".join(_histogram(sample.value, family.unit)))
    field = 3 if family.kind == "counter" else 2
    return labels + _bytes(field, _double(1, sample.value))


def _histogram(histogram: Histogram, unit: str) -> Iterator[bytes]:
    yield _number(1, histogram.count)
    yield _double(2, histogram.sum)
    for bound, count in classic_buckets(histogram, unit):
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
