"""One rank of a job on many devices: its memory, whether it fits, what it sends, its least time."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.parallel.parallel import Parallel, RankKind
from torchgauge.report.content.document import (
    Block,
    Column,
    Document,
    Note,
    Options,
    Row,
    Table,
    Warnings,
)
from torchgauge.report.content.section import SMALLEST_SHARE, Section
from torchgauge.report.content.section import Row as Figure

BOUND_NOTE = "A lower bound from peak rates of the device and its links, not a prediction."


def document(record: Parallel, _options: Options) -> Document:
    """Return memory, fit, collectives and lower bound of each kind of rank."""
    blocks: list[Block] = []
    for kind in record.kinds:
        blocks += [memory(kind), collectives(kind)]
        if kind.bounds:
            blocks += [bounds(kind), Note(BOUND_NOTE, "faint", tight=True)]
    blocks += [Warnings(record.all_warnings)] if record.all_warnings else []
    return Document(
        record.target.name,
        headline=record.target.spec,
        line=_conditions(record),
        blocks=blocks,
        names=(record.target.name,),
    )


def memory(kind: RankKind) -> Section:
    """Return what is alive on a rank at its peak, what is reserved, and whether that fits."""
    peak = kind.memory.peak
    rows = [
        Figure(part, units.size(alive), "", alive / peak)
        for part, alive in kind.memory.parts_at_peak.items()
        if alive > SMALLEST_SHARE * peak
    ]
    rows.append(Figure("alive at the peak", units.size(peak), kind.memory.peak_phase))
    rows.append(
        Figure(
            "reserved", units.size(kind.memory.reserved), "pools of all streams", how="estimated"
        )
    )
    rows += [
        Figure(fit.device, fit.verdict, f"margin {units.size(fit.margin)}", how="estimated")
        for fit in kind.fits
    ]
    return Section(f"Memory of a {kind.name}", "counted", tuple(rows))


def collectives(kind: RankKind) -> Table:
    """Return the collectives of a step by kind, group and phase."""
    columns = (
        Column("group", left_aligned=True),
        Column("phase", left_aligned=True),
        Column("calls", unit="count"),
        Column("bytes", unit="bytes"),
        Column("exposure", title="", left_aligned=True),
    )
    rows = [
        Row(
            row.kind,
            {
                "group": f"{row.group or '?'} ({row.ranks})",
                "phase": row.phase,
                "calls": row.calls,
                "bytes": row.bytes,
                "exposure": row.exposure,
            },
        )
        for row in kind.collectives
    ]
    return Table(title="Collectives", how="counted", first="kind", columns=columns, rows=rows)


def bounds(kind: RankKind) -> Table:
    """Return the least time of a step by device."""
    columns = (
        Column("seconds", title="step at least", unit="time"),
        Column("compute", unit="time"),
        Column("exposed", unit="time"),
        Column("overlappable", unit="time"),
    )
    rows = [
        Row(
            bound.device,
            {
                "seconds": bound.seconds,
                "compute": bound.compute,
                "exposed": bound.exposed,
                "overlappable": bound.overlappable,
            },
        )
        for bound in kind.bounds
    ]
    return Table(title="Time", how="estimated", first="device", columns=columns, rows=rows)


def _conditions(record: Parallel) -> str:
    mesh = " × ".join(f"{dim.name} {dim.size}" for dim in record.mesh)
    return (
        f"{mesh}: {record.world_size} ranks; {record.sharding}; {record.optimizer}, "
        f"{record.precision}, checkpointing {record.checkpoint}"
    )
