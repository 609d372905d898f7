"""A part of a record by itself: its section, or its fields where it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records import rendering
from torchgauge.records.record import Record
from torchgauge.records.timeline.compilation import Compilation
from torchgauge.records.trace.trace import RankTrace, Trace
from torchgauge.records.work.roofline import Roofline, Roofs
from torchgauge.report.content import document as doc
from torchgauge.report.content import section as time_sections
from torchgauge.report.content import sections, trace
from torchgauge.report.content.section import Row, Section
from torchgauge.report.notebook import charts
from torchgauge.report.notebook.charts import Chart
from torchgauge.report.tables.alive_tensors import alive
from torchgauge.report.tables.compilation_tables import eager_table
from torchgauge.report.tables.work_table import work_table

MOST_VALUES = 6  # of a list that is shown whole
DEPTH = 2

# By the name of the type.
BLOCKS: dict[str, Callable[[Any, doc.Options], list[doc.Block]]] = {
    "Bottleneck": lambda part, _: [sections.bounds(part, None)],
    "Compilation": lambda part, _: _compilation(part),
    "Cost": lambda part, options: [
        sections.cost(part), *work_table(part, options.by, options.depth or DEPTH)
    ],
    "Finding": lambda part, _: [doc.Findings([part], "Finding")],
    "Latency": lambda part, _: [time_sections.latency(part)],
    "MeasurementWarning": lambda part, _: [doc.Warnings([part], "Warning")],
    "Memory": lambda part, _: [sections.memory(part), *([alive(part)] if part.tensors else [])],
    "Regressions": lambda part, _: [_regressions(part)],
    "Roofline": lambda part, _: [_roofline(part)],
    "Roofs": lambda part, _: [_roofs(part)],
    "Size": lambda part, _: [sections.size(part)],
    "System": lambda part, _: [sections.system(part)],
    "Throughput": lambda part, _: [time_sections.throughput(part)],
    "TrainingTime": lambda part, _: [time_sections.training(part)],
    "Utilization": lambda part, _: [time_sections.utilization(part, rates=True)],
    "Tree": lambda part, options: [doc.Tree(part, options)],
}  # fmt: skip
CHARTS: dict[str, Callable[[Any], list[Chart]]] = {
    "Latency": charts.latency,
    "Memory": charts.memory,
    "TrainingTime": charts.training,
}


def document(part: Record, options: doc.Options) -> doc.Document:
    """Return the part's section with its warnings; of a part without a section its fields."""
    kind = type(part).__name__
    if isinstance(part, RankTrace):
        return trace.document(Trace(name=part.file, ranks=(part,)), options)
    if kind not in BLOCKS:
        return doc.Document(
            kind, facts=fields({name: getattr(part, name) for name in part.__struct_fields__})
        )
    blocks = BLOCKS[kind](part, options)
    if listed := getattr(part, "warnings", ()):
        blocks.append(doc.Warnings(listed))
    drawn = CHARTS[kind](part) if kind in CHARTS else []
    return doc.Document("", blocks=blocks, charts=drawn)


def _regressions(regressions: Record) -> doc.Items:
    lines = rendering.text(regressions, "regressions").splitlines()
    return doc.Items("Regressions", [("·", line) for line in lines])


def _roofline(roofline: Roofline) -> Section:
    best = sections.at_least(units.time(roofline.lower_bound), incomplete=roofline.at_least)
    rows = (
        Row("at best", best, f"lower bound on {roofline.roofs.device}"),
        Row("measured", units.time(roofline.time)),
        Row("efficiency", units.percent(roofline.efficiency), "that bound over the measured time"),
        Row("achieved", units.rate(roofline.flops_per_second, "FLOP")),
        Row("traffic", units.rate(roofline.bytes_per_second, "B")),
    )
    return Section("Roofline", roofline.how, rows)


def _compilation(part: Compilation) -> list[doc.Block]:
    compared = [] if part.beside_eager is None else [eager_table(part.beside_eager)]
    return [sections.compilation(part), *compared]


def _roofs(roofs: Roofs) -> Section:
    rows = [Row(dtype, units.rate(peak, "FLOP"), "products") for dtype, peak in roofs.peaks.items()]
    rows.append(Row("memory", units.rate(roofs.memory_bandwidth, "B"), "beyond the caches"))
    return Section(f"Roofs of {roofs.device}", roofs.source, tuple(rows))


def fields(values: Mapping[str, Any]) -> doc.Facts:
    """Return the values that are something, by their names."""
    empty: tuple[Any, ...] = (None, "", (), {})
    pairs = [(name.replace("_", " "), _text(v)) for name, v in values.items() if v not in empty]
    return doc.Facts(pairs, label=0, recorded=True)


def _text(value: object) -> str:
    """Return a field's value in a few words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        value = [f"{name} {_text(item)}" for name, item in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        texts = [_text(item) for item in value[:MOST_VALUES]]
        return ", ".join(texts) if len(value) <= MOST_VALUES else f"{len(value):,} of them"
    return str(value) if isinstance(value, str | int) else repr(value)
