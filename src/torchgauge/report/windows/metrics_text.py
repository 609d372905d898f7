"""Families of metrics as text: OpenMetrics, or Prometheus' older format for readers without it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchgauge.records.monitoring.histogram import Histogram
from torchgauge.report.export.openmetrics import ESCAPES
from torchgauge.report.windows.families import Family, Labels, Sample, classic_buckets

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(families: Iterable[Family], *, plain: bool = False) -> str:
    """Return the families as text; distributions have classic buckets at powers of two.

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
    if not isinstance(value, Histogram):
        suffix = "_total" if family.kind == "counter" else ""
        yield f"{name}{suffix}{_labels(sample.labels)} {value!r}"
        return
    for bound, count in classic_buckets(value, family.unit):
        yield f"{name}_bucket{_labels((*sample.labels, ('le', repr(bound))))} {count}"
    yield f"{name}_bucket{_labels((*sample.labels, ('le', '+Inf')))} {value.count}"
    yield f"{name}_count{_labels(sample.labels)} {value.count}"
    yield f"{name}_sum{_labels(sample.labels)} {value.sum!r}"


def _labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{value.translate(ESCAPES)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""
