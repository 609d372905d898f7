"""Groups of figures with a table each: compilation, and where memory ran out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge.records.memory.out_of_memory import OutOfMemory
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.compilation import EagerComparison
from torchgauge.records.timeline.loop import Loop
from torchgauge.report.content import loop as loop_report
from torchgauge.report.content import sections
from torchgauge.report.content.section import Section
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_series import rows
from torchgauge.report.tables.alive_tensors import label, shape_text
from torchgauge.report.tables.compilation_tables import NOTES, compared_name

_COMPARED = (
    page_tables.Column("layers", "layers", "text"),
    page_tables.Column("eager", "eager", "time"),
    page_tables.Column("compiled", "compiled", "time"),
    page_tables.Column("speed_up", "eager ÷ compiled", "number"),
    page_tables.Column("kernels", "kernels", "text"),
)
_COSTS = (
    page_tables.Column("cause", "cause", "text"),
    page_tables.Column("time", "time", "time"),
    page_tables.Column("count", "count", "count"),
    page_tables.Column("place", "line", "text"),
    page_tables.Column("reason", "reason", "text"),
)
_TENSORS = tuple(column for column in page_tables.TENSORS if column.key != "share")


def of_profile(profile: Profile) -> dict[str, Any] | None:
    """Return what was compiled, and eager beside compiled time of the layers."""
    record = profile.compilation
    if record is None:
        return None
    compared = None if record.beside_eager is None else _compared(record.beside_eager)
    return {"groups": [_group(sections.compilation(record), compared, "")]}


def of_loop(loop: Loop) -> dict[str, Any] | None:
    """Return what compiling cost the steps, by cause, line and reason."""
    costs = loop.compilation_costs
    if not costs:
        return None
    cells: dict[str, list[Any]] = {
        column.key: [getattr(cost, column.key) for cost in costs] for column in _COSTS
    }
    table = {**page_tables.table("costs of compilation", _COSTS, cells, []), "sorted": "time"}
    return {"groups": [{"title": "", "rows": [], "notes": [], "how": costs[0].how, "table": table}]}


def memory_ran_out(loop: Loop) -> dict[str, Any] | None:
    """Return the moments at which memory ran out or nearly so, and what was alive at each."""
    if not loop.out_of_memory:
        return None
    return {
        "groups": [
            _group(
                section := loop_report.memory_ran_out(event), _alive(event, number), section.title
            )
            for number, event in enumerate(loop.out_of_memory, 1)
        ]
    }


def _group(section: Section, table: dict[str, Any] | None, title: str) -> dict[str, Any]:
    return {
        "title": title,
        "rows": rows(section.rows),
        "notes": [*section.notes],
        "how": section.how,
        "table": table,
    }


def _compared(comparison: EagerComparison) -> dict[str, Any]:
    compared = comparison.rows
    cells: dict[str, list[Any]] = {
        "layers": [compared_name(row, len(row.layers)) for row in compared],
        "eager": [row.eager for row in compared],
        "compiled": [row.compiled for row in compared],
        "speed_up": [
            row.eager / row.compiled if row.layers and row.eager and row.compiled else None
            for row in compared
        ],
        "kernels": [", ".join(row.kernels) for row in compared],
    }
    for phase, (eager, compiled) in comparison.phases.items():
        values = (f"phase: {phase}", eager, compiled, None, "")
        for column, value in zip(_COMPARED, values, strict=True):
            cells[column.key].append(value)
    table = page_tables.table("eager beside compiled", _COMPARED, cells, [])
    return {**table, "note": " ".join(NOTES)}


def _alive(event: OutOfMemory, number: int) -> dict[str, Any] | None:
    tensors: Sequence[Any] = event.tensors
    if not tensors:
        return None
    cells: dict[str, list[Any]] = {
        "label": [label(tensor) for tensor in tensors],
        "shape": [shape_text(tensor) for tensor in tensors],
        **{
            key: [getattr(tensor, key) for tensor in tensors]
            for key in ("part", "dtype", "size", "operator", "count")
        },
    }
    return {**page_tables.table(f"tensors alive, {number}", _TENSORS, cells, []), "sorted": "bytes"}
