"""Groups of figures with a table each: compilation, and where memory ran out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge.records.memory.out_of_memory import OutOfMemory
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.compilation import ComparedLayers, EagerComparison
from torchgauge.records.timeline.loop import Loop
from torchgauge.report.content import loop as loop_report
from torchgauge.report.content import sections
from torchgauge.report.content.section import Section
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_series import rows
from torchgauge.report.page.page_tables import Column
from torchgauge.report.tables.compilation_tables import NOTES, compared_name

_COMPARED = (
    Column("layers", "layers", "text", lambda row: compared_name(row, len(row.layers))),
    Column("eager", "eager", "time"),
    Column("compiled", "compiled", "time"),
    Column("speed_up", "eager ÷ compiled", "number"),
    Column("kernels", "kernels", "text", lambda row: ", ".join(row.kernels)),
)
_COSTS = (
    Column("cause", "cause", "text"),
    Column("time", "time", "time"),
    Column("count", "count", "count"),
    Column("place", "line", "text"),
    Column("reason", "reason", "text"),
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
    costs_table = page_tables.records_table("costs of compilation", _COSTS, costs, [])
    table = {**costs_table, "sorted": "time"}
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
    phases = [
        ComparedLayers(layers=(f"phase: {phase}",), eager=eager, compiled=compiled)
        for phase, (eager, compiled) in comparison.phases.items()
    ]
    speed_ups = [
        row.eager / row.compiled if row.layers and row.eager and row.compiled else None
        for row in comparison.rows
    ]
    table = page_tables.records_table(
        "eager beside compiled",
        _COMPARED,
        [*comparison.rows, *phases],
        [],
        speed_up=[*speed_ups, *[None] * len(phases)],
    )
    return {**table, "note": " ".join(NOTES)}


def _alive(event: OutOfMemory, number: int) -> dict[str, Any] | None:
    tensors: Sequence[Any] = event.tensors
    if not tensors:
        return None
    page_table = page_tables.records_table(f"tensors alive, {number}", _TENSORS, tensors, [])
    return {**page_table, "sorted": "bytes"}
