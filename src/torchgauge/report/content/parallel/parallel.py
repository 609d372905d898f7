"""One rank of a job on many devices: whether it fits, its memory, what it sends, its least time."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.parallel.parallel import Parallel
from torchgauge.records.parallel.rank_memory import SmallestMesh, Verdict
from torchgauge.report.content import document as doc
from torchgauge.report.content.count import model_name
from torchgauge.report.content.parallel.rank_blocks import bounds, collectives, layers, memory, work
from torchgauge.report.notebook import charts

TONES: dict[Verdict, doc.Tone] = {"fits": "good", "may fit": "doubtful", "does not fit": "bad"}
WORST: tuple[Verdict, ...] = ("does not fit", "may fit", "fits")
RESERVED_NOTE = (
    "Reserved: the peaks of the streams' pools. Fragmentation, the driver, buffers of NCCL and "
    "libraries come on top; the margin must be what it needs."
)
REMEDY = "What would make it fit: the same command with --savings."


def title(record: Parallel) -> str:
    """Return the name of the model."""
    return record.target.name


def document(record: Parallel, options: doc.Options) -> doc.Document:
    """Return whether it fits, then memory, collectives, work and time of each kind of rank."""
    several = len(record.kinds) > 1
    blocks: list[doc.Block] = [fits(record)] if record.largest.fits else []
    if record.alternatives:
        blocks.append(alternatives(record))
    if record.smallest is not None:
        blocks.append(smallest(record.smallest))
    for kind in record.kinds:
        if several:
            blocks.append(doc.Heading(kind.name, f"rank {kind.rank}, {_ranks(kind.ranks)} alike"))
        blocks += [memory(kind), layers(kind, options.top), collectives(kind), work(kind)]
        blocks += [bounds(kind)] if kind.bounds else []
    blocks += [doc.Warnings(record.all_warnings)] if record.all_warnings else []
    return doc.Document(
        title(record),
        headline=headline(record),
        line=_conditions(record),
        facts=doc.Facts([("target", record.target.spec)]) if record.target.spec else None,
        blocks=blocks,
        names=(title(record),),
        charts=[
            charts.divided(f"Alive at the peak{f', {kind.name}' * several}", parts, units.size)
            for kind in record.kinds
            if (
                parts := {
                    str(name): size for name, size in kind.memory.parts_at_peak.items() if size
                }
            )
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


def fits(record: Parallel) -> doc.Table:
    """Return for each kind of rank and device whether it fits, and with which margin."""
    several = len(record.kinds) > 1
    columns = (
        doc.Column(
            "verdict", "", get=lambda pair: pair[1].verdict, left_aligned=True, judging=True
        ),
        doc.Column("alive", unit="bytes", get=lambda pair: pair[0].memory.peak, priority=2),
        doc.Column("reserved", unit="bytes", get=lambda pair: pair[0].memory.reserved),
        doc.Column("memory", "available", "bytes", lambda pair: pair[1].memory),
        doc.Column("margin", unit="bytes", get=lambda pair: pair[1].margin),
        doc.Column("needed", "needs", "bytes", lambda pair: pair[1].needed_margin, priority=1),
    )
    rows = [
        doc.Row(f"{kind.name}, {name}" if several else name, doc.cells(columns, (kind, fit)),
            tone=TONES[fit.verdict])
        for kind in record.kinds for fit in kind.fits for name in (model_name(fit.device),)
    ]  # fmt: skip
    tight = any(fit.verdict != "fits" for kind in record.kinds for fit in kind.fits)
    remedy = (REMEDY,) if tight and not record.alternatives else ()
    return doc.Table(
        title="Does it fit", how="estimated", first="device", columns=columns, rows=rows,
        layout="fitted", notes=(RESERVED_NOTE, *remedy),
    )  # fmt: skip


def alternatives(record: Parallel) -> doc.Table:
    """Return what the step takes with one setting changed, most saved first."""
    largest = record.largest
    devices = [fit.device for fit in largest.fits]
    columns = (
        doc.Column("reserved", unit="bytes"),
        doc.Column("saved", unit="bytes"),
        *(
            doc.Column(device, title=f"on {model_name(device)}", left_aligned=True)
            for device in devices
        ),
        doc.Column("flops", "FLOPs", priority=1),
        doc.Column("sent", priority=2),
        doc.Column("host", "on the host", "bytes", priority=3),
        doc.Column("option", "by", left_aligned=True, priority=4),
    )
    rows = [
        doc.Row("as it is", {"reserved": largest.memory.reserved,
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
        filled = {key: value for key, value in cells.items() if value is not None}
        verdicts = [verdict for verdict in WORST if verdict in other.verdicts.values()]
        tone: doc.Tone = TONES[verdicts[0]] if verdicts else ""
        rows.append(doc.Row(other.name, filled, tone=tone if tone == "good" else ""))
    failed = [f"{other.name}: {other.failed}" for other in record.alternatives if other.failed]
    return doc.Table(
        title="What would save memory", how="counted again", first="change", columns=columns,
        rows=rows, layout="fitted", notes=failed,
    )  # fmt: skip


def _relative(new: float | None, old: float) -> str | None:
    if new is None or not old or new == old:
        return None
    return f"{'+' * (new > old)}{units.percent(new / old - 1)}"


def smallest(trials: SmallestMesh) -> doc.Table:
    """Return what each size that was tried reserves, and the smallest that fits."""
    columns = (
        doc.Column("verdict", "", left_aligned=True, judging=True),
        doc.Column("reserved", unit="bytes"),
    )
    rows = [
        doc.Row(f"{trials.dim} {size}", {"verdict": verdict, "reserved": trials.reserved.get(size)},
            tone=TONES[verdict])
        for size, verdict in sorted(trials.verdicts.items())
    ]  # fmt: skip
    answer = (
        f"No size that was tried fits {model_name(trials.device)}."
        if trials.size is None
        else f"The smallest that fits {model_name(trials.device)}: {trials.dim} {trials.size}."
    )
    notes: tuple[str, ...] = (answer,)
    if trials.early_end:
        notes = (answer, f"The search ended early: {trials.early_end}")
    return doc.Table(
        title="Smallest mesh", how="estimated", first="mesh", columns=columns, rows=rows,
        notes=notes,
    )  # fmt: skip
