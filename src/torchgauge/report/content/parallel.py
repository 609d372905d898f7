"""One rank of a job on many devices: whether it fits, its memory, what it sends, its least time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from torchgauge import units
from torchgauge.records.parallel.parallel import Parallel, RankKind
from torchgauge.records.parallel.rank_memory import DeviceFit, SmallestMesh, Verdict
from torchgauge.records.parallel.rank_work import LinkBound, StepBound
from torchgauge.report.content.count import model_name
from torchgauge.report.content.document import (
    Block,
    Column,
    Document,
    Facts,
    Heading,
    Options,
    Row,
    Table,
    Tone,
    Warnings,
)
from torchgauge.report.content.section import SMALLEST_SHARE, Section
from torchgauge.report.content.section import Row as Figure
from torchgauge.report.notebook import charts

TONES: dict[Verdict, Tone] = {"fits": "good", "may fit": "doubtful", "does not fit": "bad"}
WORST: tuple[Verdict, ...] = ("does not fit", "may fit", "fits")
RESERVED_NOTE = (
    "Reserved: the peaks of each stream's pool, which the allocator gives to no other. Fragmentation, "
    "the driver, buffers of NCCL and libraries come on top: a margin of what it needs fits them."
)
BOUND_NOTE = "A lower bound from peak rates of the device and its links, not a prediction."
EXPOSURE_NOTE = (
    "exposed: the next operator needs it at once; overlappable: it may run beside other work."
)
_NUMBER = re.compile(r"\d+")


def title(record: Parallel) -> str:
    """Return the name of the model."""
    return record.target.name


def document(record: Parallel, options: Options) -> Document:
    """Return whether it fits, then memory, collectives, work and time of each kind of rank."""
    several = len(record.kinds) > 1
    blocks: list[Block] = [fits(record)] if record.largest.fits else []
    if record.alternatives:
        blocks.append(alternatives(record))
    if record.smallest is not None:
        blocks.append(smallest(record.smallest))
    for kind in record.kinds:
        if several:
            blocks.append(Heading(kind.name, f"  rank {kind.rank}, {_ranks(kind.ranks)} alike"))
        blocks += [memory(kind), layers(kind, options.top), collectives(kind), work(kind)]
        blocks += [bounds(kind)] if kind.bounds else []
    blocks += [Warnings(record.all_warnings)] if record.all_warnings else []
    return Document(
        title(record),
        headline=headline(record),
        line=_conditions(record),
        facts=Facts([("target", record.target.spec)]) if record.target.spec else None,
        blocks=blocks,
        names=(title(record),),
        charts=[
            charts.divided(f"Alive at the peak{f', {kind.name}' * several}", parts, units.size)
            for kind in record.kinds
            if (parts := {name: size for name, size in kind.memory.parts_at_peak.items() if size})
        ],
    )


def headline(record: Parallel) -> str:
    """Return the worst verdict on each device, or what the largest rank reserves."""
    kind = record.largest
    if not kind.fits:
        return f"reserves {units.size(kind.memory.reserved, 3)} on each device"
    return ", ".join(
        f"{worst_verdict(record, fit.device)} {model_name(fit.device)}" for fit in kind.fits
    )


def worst_verdict(record: Parallel, device: str) -> Verdict:
    """Return the verdict of the rank that fits worst into a device."""
    verdicts = {fit.verdict for kind in record.kinds for fit in kind.fits if fit.device == device}
    return next(verdict for verdict in WORST if verdict in verdicts)


def _conditions(record: Parallel) -> str:
    mesh = " × ".join(f"{dim.name} {dim.size}" for dim in record.mesh)
    return (
        f"{mesh}, {_ranks(record.world_size)}; sharded by {record.sharding}; {record.optimizer}, "
        f"{record.precision}, checkpointing {record.checkpoint}"
    )


def _ranks(count: int) -> str:
    return f"{count:,} rank{'s' * (count != 1)}"


def fits(record: Parallel) -> Table:
    """Return for each kind of rank and device whether it fits, and with which margin."""
    several = len(record.kinds) > 1
    columns = (
        Column("verdict", title="", left_aligned=True, judging=True),
        Column("alive", unit="bytes", priority=2),
        Column("reserved", unit="bytes"),
        Column("memory", title="available", unit="bytes"),
        Column("margin", unit="bytes"),
        Column("needed", title="needs", unit="bytes", priority=1),
    )
    rows = [
        Row(f"{kind.name}, {name}" if several else name, _fit_cells(kind, fit),
            tone=TONES[fit.verdict])
        for kind in record.kinds for fit in kind.fits for name in (model_name(fit.device),)
    ]  # fmt: skip
    return Table(
        title="Does it fit", how="estimated", first="device", columns=columns, rows=rows,
        layout="fitted", notes=(RESERVED_NOTE,),
    )  # fmt: skip


def _fit_cells(kind: RankKind, fit: DeviceFit) -> dict[str, str | float | None]:
    return {
        "verdict": fit.verdict,
        "alive": kind.memory.peak,
        "reserved": kind.memory.reserved,
        "memory": fit.memory,
        "margin": fit.margin,
        "needed": fit.needed_margin,
    }


def alternatives(record: Parallel) -> Table:
    """Return what the step takes with one setting changed, most saved first."""
    largest = record.largest
    devices = [fit.device for fit in largest.fits]
    columns = (
        Column("reserved", unit="bytes"),
        Column("saved", unit="bytes"),
        *(
            Column(device, title=f"on {model_name(device)}", left_aligned=True)
            for device in devices
        ),
        Column("flops", title="FLOPs", priority=1),
        Column("sent", priority=2),
        Column("host", title="on the host", unit="bytes", priority=3),
        Column("option", title="by", left_aligned=True, priority=4),
    )
    rows = [
        Row("as it is", {"reserved": largest.memory.reserved,
            **{fit.device: worst_verdict(record, fit.device) for fit in largest.fits}})
    ]  # fmt: skip
    unknown = float("inf")
    for other in sorted(
        record.alternatives, key=lambda other: unknown if other.reserved is None else other.reserved
    ):
        cells: dict[str, str | float | None] = {"option": other.option, **other.verdicts}
        if other.reserved is not None:
            cells["reserved"] = other.reserved
            cells["saved"] = largest.memory.reserved - other.reserved
            cells["flops"] = _relative(other.executed_flops, largest.executed_flops)
            cells["sent"] = _relative(other.sent, largest.sent)
            cells["host"] = other.host or None
        known = {key: value for key, value in cells.items() if value is not None}
        verdicts = [verdict for verdict in WORST if verdict in other.verdicts.values()]
        tone: Tone = TONES[verdicts[0]] if verdicts else ""
        rows.append(Row(other.name, known, tone=tone if tone == "good" else ""))
    failed = [f"{other.name}: {other.failed}" for other in record.alternatives if other.failed]
    return Table(
        title="What would save memory", how="counted again", first="change", columns=columns,
        rows=rows, layout="fitted", notes=failed,
    )  # fmt: skip


def _relative(new: float | None, old: float) -> str | None:
    if new is None or not old or new == old:
        return None
    return f"{'+' * (new > old)}{units.percent(new / old - 1)}"


def smallest(found: SmallestMesh) -> Table:
    """Return what each size that was tried reserves, and the smallest that fits."""
    columns = (
        Column("verdict", title="", left_aligned=True, judging=True),
        Column("reserved", unit="bytes"),
    )
    rows = [
        Row(f"{found.dim} {size}", {"verdict": verdict, "reserved": found.reserved.get(size)},
            tone=TONES[verdict])
        for size, verdict in sorted(found.verdicts.items())
    ]  # fmt: skip
    answer = (
        f"None of the sizes tried surely fits {model_name(found.device)}."
        if found.size is None
        else f"The smallest that fits {model_name(found.device)}: {found.dim} {found.size}."
    )
    return Table(
        title="Smallest mesh", how="estimated", first="mesh", columns=columns, rows=rows,
        notes=(answer,),
    )  # fmt: skip


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
        Column("most", title="of it", left_aligned=True, priority=99),
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
        known = {key: value for key, value in cells.items() if value}
        rows.append(Row(label or "(the model itself)", known))
    return Table(
        title="Alive at the peak", how=kind.memory.how, first="layer", columns=columns, rows=rows,
        recorded=True, layout="fitted", total_rows=len(ordered), noun="layers",
    )  # fmt: skip


def collectives(kind: RankKind) -> Table:
    """Return the collectives of a step by kind, group and phase, most bytes first."""
    columns = (
        Column("group", left_aligned=True, recorded=True),
        Column("ranks", unit="count", priority=3),
        Column("phase", left_aligned=True),
        Column("dtype", left_aligned=True, priority=2),
        Column("calls", unit="count"),
        Column("bytes", unit="bytes"),
        Column("sent", title="sent ≥", unit="bytes", priority=1),
        Column("exposure", title="", left_aligned=True),
    )
    rows = [
        Row(
            row.kind.replace("_", "-"),
            {
                "group": row.group or "other",
                "ranks": row.ranks,
                "phase": row.phase,
                "dtype": row.dtype,
                "calls": row.calls,
                "bytes": row.bytes,
                "sent": row.sent,
                "exposure": row.exposure,
            },
        )
        for row in sorted(kind.collectives, key=lambda row: -row.bytes)
    ]
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
        Column("seconds", title="step ≥", tone="strong"),
        Column("compute", unit="time"),
        Column("exposed", unit="time"),
        Column("overlappable", unit="time", priority=1),
        Column("moved", unit="bytes", priority=3),
        Column("rate", title="of a link", priority=2),
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
