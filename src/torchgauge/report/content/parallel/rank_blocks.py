"""What one rank holds, sends, computes, and the least time of its step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from torchgauge import units
from torchgauge.records.parallel.parallel import LinkBound, RankKind, StepBound
from torchgauge.report.content.count import model_name
from torchgauge.report.content.document import Column, Row, Table, rows_of
from torchgauge.report.content.section import SMALLEST_SHARE, Section
from torchgauge.report.content.section import Row as Figure

BOUND_NOTE = "A lower bound from peak rates of the device and its links, not a prediction."
EXPOSURE_NOTE = "exposed: the next operator needs it at once; overlappable: other work can hide it."
_NUMBER = re.compile(r"\d+")


def memory(kind: RankKind) -> Section:
    """Return what is alive on a rank at its peak by part, and what the allocator reserves."""
    used = kind.memory
    rows = [
        Figure(part, units.size(alive), "", alive / used.peak)
        for part, alive in used.parts_at_peak.items()
        if alive > SMALLEST_SHARE * used.peak
    ]
    phases = ", ".join(f"{phase} {units.size(size, 3)}" for phase, size in used.phases.items())
    pools = " + ".join(f"{pool.stream} {units.size(pool.peak, 3)}" for pool in used.pools)
    resting = sum(used.resting.values())
    rows += [
        Figure("at the peak", units.size(used.peak), f"in {used.peak_phase}; by phase: {phases}"),
        Figure("at rest", units.size(resting), "between steps"),
        Figure("reserved", units.size(used.reserved), pools, how=used.reserved_how),
    ]  # fmt: skip
    return Section("Memory of a rank", used.how, tuple(rows), headlines=("at the peak", "reserved"))


def layers(kind: RankKind, top: int) -> Table:
    """Return what layers hold at the peak; layers that differ in a number alone are one row."""
    groups: dict[str, Counter[str]] = {}
    members: dict[str, set[str]] = {}
    for alive in kind.memory.at_peak:
        name = _NUMBER.sub("*", alive.layer)
        groups.setdefault(name, Counter())[alive.part] += alive.bytes
        members.setdefault(name, set()).add(alive.layer)
    totals = {name: sum(parts.values()) for name, parts in groups.items()}
    ordered = sorted(totals, key=lambda name: -totals[name])
    parts = [part for part, _ in sum(groups.values(), Counter[str]()).most_common()]
    columns = (
        Column("layers", unit="count"),
        Column("bytes", unit="bytes"),
        Column("share", unit="share"),
        Column("most", "of it", left_aligned=True, priority=99),
        *(Column(part, unit="bytes", priority=10 + index) for index, part in enumerate(parts)),
    )
    rows = []
    for name in ordered[:top]:
        count = len(members[name])
        label = next(iter(members[name])) if count == 1 else name
        cells: dict[str, str | float | None] = {
            "layers": count if count > 1 else None,
            "bytes": totals[name],
            "share": totals[name] / max(kind.memory.peak, 1),
            **groups[name],
        }
        filled = {key: value for key, value in cells.items() if value}
        rows.append(Row(label or "(the model itself)", filled))
    return Table(
        title="Alive at the peak", how=kind.memory.how, first="layer", columns=columns, rows=rows,
        recorded=True, layout="fitted", total_rows=len(ordered), noun="layers",
    )  # fmt: skip


def collectives(kind: RankKind) -> Table:
    """Return the collectives of a step by kind, group and phase, most bytes first."""
    columns = (
        Column("group", get=lambda row: row.group or "other", left_aligned=True, recorded=True),
        Column("ranks", unit="count", priority=3),
        Column("phase", left_aligned=True),
        Column("dtype", left_aligned=True, priority=2),
        Column("calls", unit="count"),
        Column("bytes", unit="bytes"),
        Column("sent", "sent ≥", "bytes", priority=1),
        Column("exposure", "", left_aligned=True),
    )
    ordered = sorted(kind.collectives, key=lambda row: -row.bytes)
    rows = rows_of(columns, ordered, lambda row: row.kind.replace("_", "-"))
    notes = (EXPOSURE_NOTE,) if rows else ("None: this rank communicates with no other.",)
    return Table(
        title="Collectives of a step", how="counted", first="kind", columns=columns, rows=rows,
        layout="fitted", notes=notes,
    )  # fmt: skip


def work(kind: RankKind) -> Section:
    """Return the FLOPs of a rank's step by phase, and what they are on."""
    prefix = "≥ " if kind.at_least else ""
    phases: dict[str, Counter[str]] = {}
    for row in kind.work:
        sums = phases.setdefault(row.phase, Counter())
        sums["flops"] += row.matmul_flops + row.vector_flops
        sums["unknown"] += row.unknown_calls
        sums[row.dtype] += row.matmul_flops
    rows = [
        Figure(
            phase,
            ("≥ " if sums["unknown"] else "") + units.count(sums["flops"]),
            _products(sums),
            sums["flops"] / max(kind.executed_flops, 1),
        )
        for phase, sums in phases.items()
        if sums["flops"] or sums["unknown"]
    ]
    rows.append(Figure("FLOPs", prefix + units.count(kind.flops), "without recomputation"))
    return Section("Work of a rank", "counted", tuple(rows), headlines=("FLOPs",))


def _products(sums: Counter[str]) -> str:
    dtypes = ", ".join(
        f"{dtype} {units.count(flops, 3)}"
        for dtype, flops in sums.items()
        if flops and dtype not in ("flops", "unknown")
    )
    unknown = f"{sums['unknown']:,} calls without formula" if sums["unknown"] else ""
    return "; ".join(filter(None, (f"products {dtypes}" if dtypes else "", unknown)))


def bounds(kind: RankKind) -> Table:
    """Return the least time of a step by device, with the links below it."""
    columns = (
        Column("seconds", "step ≥", tone="strong"),
        Column("compute", unit="time"),
        Column("exposed", unit="time"),
        Column("overlappable", unit="time", priority=1),
        Column("moved", unit="bytes", priority=3),
        Column("rate", "of a link", priority=2),
    )
    rows: list[Row] = []
    for bound in kind.bounds:
        rows += [_bound_row(bound), *_link_rows(bound.links)]
    return Table(
        title="Time of a step at least", how="estimated", first="device", columns=columns,
        rows=rows, notes=(BOUND_NOTE,), layout="fitted",
    )  # fmt: skip


def _bound_row(bound: StepBound) -> Row:
    at_least = ", some work missing" if bound.at_least else ""
    cells: dict[str, str | float | None] = {
        "seconds": units.time(bound.seconds, 3) + at_least,
        "compute": bound.compute,
        "exposed": bound.exposed,
        "overlappable": bound.overlappable,
    }
    return Row(model_name(bound.device), cells)


def _link_rows(links: Sequence[LinkBound]) -> Iterator[Row]:
    for link in links:
        yield Row(
            f"{link.group or 'other'} by {link.link.name}",
            {
                "exposed": link.exposed_seconds,
                "overlappable": link.overlappable_seconds,
                "moved": link.moved,
                "rate": f"{units.size(link.link.bytes_per_second, 3)}/s",
            },
            level=1,
            tone="faint",
        )
