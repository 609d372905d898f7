"""The flat view of a record: one row, with units in the keys."""

from __future__ import annotations

from torchgauge.records.figures import figures
from torchgauge.records.generation.generation import Generation
from torchgauge.records.headline.figure import Figure, Unit
from torchgauge.records.parallel.parallel import Parallel
from torchgauge.records.profile import Profile
from torchgauge.records.serving.serving import Serving
from torchgauge.records.sweep import Sweep
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.records.trace.ranks import Ranks
from torchgauge.records.work.size import Count

Value = float | int | str | None
Summarized = Profile | Count | Generation | Loop | Parallel | Ranks | Serving | Sweep | TrainingRun

# What a key ends in, and how many of that unit one SI unit is.
KEY_SUFFIXES: dict[Unit, tuple[str, float]] = {
    "": ("", 1),
    "s": ("_ms", 1e3),
    "B": ("_bytes", 1),
    "1/s": ("_per_s", 1),
    "B/s": ("_bytes_per_s", 1),
    "ratio": ("_fraction", 1),
    "W": ("_w", 1),
    "J": ("_j", 1),
    "Hz": ("_hz", 1),
}


def summarize(record: Summarized) -> dict[str, Value]:
    """Return one value per key; keys of parts that were not measured are there, with None."""
    row = identity(record)
    for figure in figures(record):
        row.update(_cells(figure))
    if isinstance(record, Profile):
        latency = record.latency
        row["latency_stop"] = None if latency is None else latency.stop
        row["latency_interval_scope"] = None if latency is None else latency.interval_scope
        row["bound_by"] = None if record.bottleneck is None else record.bottleneck.kind
    warnings = record.warnings if isinstance(record, Ranks) else record.all_warnings
    row["warnings"] = "; ".join(dict.fromkeys(warning.id for warning in warnings))
    return row


def identity(record: Summarized) -> dict[str, Value]:
    """Return what was measured on what, and when, as far as the record says it."""
    if isinstance(record, Ranks):
        return {}
    if isinstance(record, Loop | TrainingRun):
        rank = None if record.rank is None else record.rank.number
        model = ", ".join(record.roots) if isinstance(record, Loop) else record.model
        return {"model": model, "rank": rank, "created": record.environment.created}
    if isinstance(record, Sweep):
        created = record.environment.created
        return {"target": record.target.spec, "model": record.target.name, "created": created}
    target = record.target
    return {
        "target": target.spec,
        "model": target.name,
        "device": target.device,
        "precision": target.precision,
        "batch_size": target.batch,
        **({} if isinstance(record, Count | Parallel) else {"created": record.environment.created}),
    }


def _cells(figure: Figure) -> dict[str, Value]:
    name = figure.name
    if figure.rank is not None:
        name = name.replace("rank", f"rank{figure.rank}", 1)
    name = "_".join([name, *(f"{label}{value}" for label, value in figure.labels)])
    suffix, factor = KEY_SUFFIXES[figure.unit]
    cells: dict[str, Value] = {name + suffix: _times(figure.value, factor)}
    if figure.bounded:
        low, high = (None, None)
        if figure.interval is not None:
            low, high = figure.interval.low, figure.interval.high
        cells[f"{name}_low{suffix}"] = _times(low, factor)
        cells[f"{name}_high{suffix}"] = _times(high, factor)
    return cells


def _times(value: float | int | None, factor: float) -> float | int | None:
    return value if value is None or factor == 1 else value * factor
