"""The page of a profile: its first screen, tree, tables, charts and how it was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgauge import units
from torchgauge.analyze.work.roof_quality import description, shortcomings
from torchgauge.records.memory.memory import OutOfMemory
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.compilation import ComparedLayers, EagerComparison
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.node import Node
from torchgauge.records.work.roofline import Bottleneck, Roofs
from torchgauge.report.content import loop as loop_report
from torchgauge.report.content import section as time_sections
from torchgauge.report.content import sections
from torchgauge.report.content.document import Column
from torchgauge.report.content.findings import findings_of
from torchgauge.report.content.section import Section
from torchgauge.report.page import page_series, page_tables, page_tree
from torchgauge.report.page.page_document import figure, finding_entry, first_screen
from torchgauge.report.page.page_series import rows
from torchgauge.report.page.timeline.page_timeline import timeline
from torchgauge.report.tables.alive_tensors import tensor_table
from torchgauge.report.tables.category_table import roofs_of
from torchgauge.report.tables.compilation_tables import NOTES, compared_name, costs_table, speed_up

# Layers that take less of the step are too small to see and too many to draw.
SMALLEST_SHARE = 1e-4


def roofline(profile: Profile) -> dict[str, Any] | None:
    """Return roofs and points (FLOPs per byte, FLOP/s, ns), or why there are no roofs.

    None where no layer was timed: there would be nothing under the roofs. A training step has no
    roofs: it is timed with its optimizer.
    """
    points = [] if profile.tree is None else _points(profile.tree.nodes)
    if not points:
        return None
    record = profile.roofline
    roof_sets = (
        []
        if record is None
        else [roofs for roofs in (record.roofs, record.datasheet) if roofs is not None]
    )
    if not roof_sets:
        return None if profile.target.training else _missing()
    dtypes = (
        {}
        if profile.cost is None
        else {row.dtype: None for row in profile.cost.rows if row.matmul_flops}
    )
    names = ("node", "path", "type", "intensity", "speed", "time", "bound", "efficiency")
    return {
        "points": dict(zip(names, map(list, zip(*points, strict=True)), strict=True)),
        "roofs": [_roofs(roofs, list(dtypes)) for roofs in roof_sets],
        "how": "measured" if record is None else record.how,
    }


def _missing() -> dict[str, str]:
    """Say why there are no roofs, and how to measure them."""
    reason = "How fast this device can be was not measured. This command does that:"
    return {"missing": reason, "command": "torchgauge profile TARGET --roofs"}


def _points(nodes: list[Node]) -> list[tuple[Any, ...]]:
    """Return the model and the layers that call no other, where both their axes are known."""
    total_time = nodes[0].time or 0.0
    points = []
    for number, node in enumerate(nodes):
        leaf = node.kind == "layer" and not node.layers
        if not (leaf or node.kind == "model") or (node.time or 0.0) < SMALLEST_SHARE * total_time:
            continue
        intensity, speed = node.intensity, node.flops_per_second
        if intensity and speed:
            time = round((node.time or 0.0) * 1e9)
            name = node.row.path or node.name
            points.append(
                (number, name, node.row.type, intensity, speed, time, node.bound, node.efficiency)
            )
    return points


def _roofs(roofs: Roofs, dtypes: list[str]) -> dict[str, Any]:
    """Return the peaks of the dtypes that the model uses and the widest and narrowest traffic."""
    peaks = {dtype: peak for dtype in dtypes if (peak := roofs.peak(dtype)) is not None}
    if "float32" in dtypes and "tf32" in roofs.peaks:
        peaks["tf32"] = roofs.peaks["tf32"]
    traffic = {}
    if roofs.memory_bandwidth is not None:
        traffic["memory"] = roofs.memory_bandwidth
        fastest = roofs.bandwidth[0].bytes_per_second
        if fastest > 1.5 * roofs.memory_bandwidth:
            traffic["cache"] = fastest
    return {
        "device": ", ".join((roofs.device, *shortcomings(roofs))),
        "source": roofs.source,
        "peaks": peaks or roofs.peaks,
        "traffic": traffic,
    }


NOT_MEASURED = "not measured in this run"
ONE_STEP = (
    "One step as it was recorded, with what the recording itself takes: the tree has times of a "
    "step without it."
)


def overview(profile: Profile) -> dict[str, Any]:
    """Return the first screen of a profile."""
    return first_screen(
        rows(sections.target(profile).rows),
        figures(profile),
        map(finding_entry, findings_of(profile)),
        sections.warnings(profile),
        created=profile.environment.created,
        bound=None if profile.bottleneck is None else _bound(profile, profile.bottleneck),
        phases=_phases(profile),
        complete=profile.complete,
        interrupted=profile.interrupted,
    )


def figures(profile: Profile) -> list[dict[str, str]]:
    """Return the headline figures; unknown ones are listed as unknown."""
    step = "time of a step" if profile.target.training else "latency"
    cards = [
        _section_figure(step, "latency", profile.latency, time_sections.latency, "median"),
        _section_figure("throughput", "latency", profile.throughput, time_sections.throughput),
        _section_figure("peak memory", "memory", profile.memory, sections.memory, "peak"),
        _section_figure("parameters", "figures", profile.size, sections.size, "parameters"),
        _section_figure("FLOPs", "roofline", profile.cost, sections.cost, "FLOPs"),
    ]
    if profile.energy is not None:
        cards.append(
            _section_figure("energy", "system", profile.energy, time_sections.energy, "a call")
        )
    if profile.utilization is not None:
        used = profile.utilization
        cards.append(_section_figure("MFU", "roofline", used, time_sections.utilization, "MFU"))
    roofline = profile.roofline
    if roofline is not None and roofline.efficiency is not None:
        roofs = description(roofline.roofs)
        note = f"at best {units.time(roofline.lower_bound)} at the roofs ({roofs})"
        efficiency = sections.at_least(
            units.percent(roofline.efficiency), incomplete=roofline.at_least
        )
        cards.append(figure("efficiency", efficiency, note, roofline.how, "roofline"))
    return cards


def _section_figure(
    label: str, view: str, part: Any, build: Callable[[Any], Section], row_label: str | None = None
) -> dict[str, str]:
    """Return the row of that label from the part's section, by default the first."""
    if part is None:
        return figure(label, units.UNKNOWN, NOT_MEASURED, "")
    section = build(part)
    row = next(row for row in section.rows if row_label in (None, row.label))
    return figure(label, row.value, row.note, section.how, view)


def _bound(profile: Profile, bottleneck: Bottleneck) -> dict[str, Any]:
    times = {
        "arithmetic": bottleneck.compute_time,
        "memory traffic": bottleneck.memory_time,
        "neither": bottleneck.unexplained,
    }
    parts = [[name, round(time * 1e9)] for name, time in times.items() if time and time > 0]
    if bottleneck.kind is None:
        parts = []
    return {
        "kind": bottleneck.kind,
        "confidence": bottleneck.confidence,
        "evidence": bottleneck.evidence,
        "parts": parts,
        "how": bottleneck.how,
        "training": profile.target.training,
    }


def _phases(profile: Profile) -> dict[str, Any] | None:
    """Return the parts of a training step."""
    training = profile.training
    if training is None:
        return None
    return {
        "parts": [[phase.name, round(phase.seconds * 1e9)] for phase in training.phases],
        "step": round(training.step * 1e9),
        "how": training.how,
    }


def tables(profile: Profile) -> list[dict[str, Any]] | None:
    """Return the tables of a profile's tree, and of the tensors alive at its memory peak."""
    listed_tables = (
        [] if profile.tree is None else page_tables.all_tables(profile.tree, roofs_of(profile))
    )
    if profile.memory is not None and profile.memory.tensors:
        memory = profile.memory
        tensors = tensor_table("Alive at the peak", memory.tensors, memory.peak, rows=None)
        listed_tables.append(page_tables.document_table(tensors))
    return listed_tables or None


_COMPARED = (
    Column("layers", "layers", "text", lambda row: compared_name(row, len(row.layers))),
    Column("eager", "eager", "time"),
    Column("compiled", "compiled", "time"),
    Column("speed_up", "eager ÷ compiled", "number", speed_up),
    Column("kernels", "kernels", "text", lambda row: ", ".join(row.kernels)),
)


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
    table = page_tables.document_table(costs_table(costs))
    table |= {"nodes": [], "sorted": "time"}
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
    rows = [*comparison.rows, *phases]
    table = page_tables.records_table("eager beside compiled", _COMPARED, rows, [])
    return {**table, "note": " ".join(NOTES)}


def _alive(event: OutOfMemory, number: int) -> dict[str, Any] | None:
    if not event.tensors:
        return None
    total = sum(tensor.size for tensor in event.tensors)
    block = tensor_table(f"tensors alive, {number}", event.tensors, total, rows=None)
    return page_tables.document_table(block) | {"nodes": [], "sorted": "bytes"}


PARTS = {
    "overview": overview,
    "timeline": lambda profile: timeline(profile.tree, ONE_STEP),
    "tree": page_tree.profile_tree,
    "tables": tables,
    "compilation": of_profile,
    "roofline": roofline,
    "latency": page_series.latency,
    "memory": page_series.memory,
    "system": page_series.system,
    "method": page_series.profile_method,
    "environment": page_series.environment,
}
