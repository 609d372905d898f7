"""The shapes as rows: one for each, all figures with their intervals, for CSV; or the trees."""

from __future__ import annotations

from typing import Any

from torchgauge.records.exported import Csv
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation
from torchgauge.records.headline.figure import generation_figures
from torchgauge.records.summary import KEY_SUFFIXES
from torchgauge.records.timeline import tables
from torchgauge.report.export.stacks import needed_tree

WORK = ("flops", "bytes", "weight_bytes", "cache_bytes", "lower_bound", "bound", "reached")


def table(generation: Generation, name: Csv) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows: of the shapes, or of both trees with the stage before each row.

    Raises InputError `no-tree` where it was measured without trees.
    """
    if name == "figures":
        rows = [row(cell) for cell in generation.cells]
    elif not generation.trees or name == "categories":
        needed_tree(generation)
    else:
        rows = [
            {"stage": stage.stage, **node}
            for stage in generation.trees
            for node in tables.table(stage.tree, name).rows()
        ]
    return list(rows[0]) if rows else ["name"], [list(values.values()) for values in rows]


def row(cell: GenerationCell) -> dict[str, Any]:
    """Return all of a shape in SI units; None is unknown."""
    values: dict[str, Any] = {**cell.shape, "status": cell.status, "reason": cell.reason}
    values["calls"] = len(cell.timed_calls)
    for figure in generation_figures(cell):
        name = figure.name.removeprefix("generation_")
        suffix = "_s" if figure.unit == "s" else KEY_SUFFIXES[figure.unit][0]
        values[name + suffix] = figure.value
        if figure.bounded:
            for end in ("low", "high"):
                values[f"{name}_{end}{suffix}"] = getattr(figure.interval, end, None)
    values["cache_formula_bytes"] = getattr(cell.cache, "formula", None)
    values["memory_peak_bytes"] = getattr(cell.memory, "peak", None)
    for stage in ("prefill", "decode"):
        work = cell.work_of(stage)
        for name in WORK:
            unit = "_s" if name == "lower_bound" else ""
            values[f"{stage}_{name}{unit}"] = getattr(work, name, None)
    return values
