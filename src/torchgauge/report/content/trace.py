"""What a recorded trace says: what stands out, where the devices' time went, and the tree."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from torchgauge import units
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.ranks import Ranks
from torchgauge.records.trace.trace import RankTrace, Trace
from torchgauge.report.content.document import (
    Block,
    Column,
    Document,
    Facts,
    Findings,
    Heading,
    Items,
    Note,
    Options,
    Row,
    Table,
    Tree,
    Warnings,
    cells,
)
from torchgauge.report.content.findings import verdict_items
from torchgauge.report.content.section import utilization
from torchgauge.report.tables.category_table import categories, roofs_of
from torchgauge.report.tables.trace_devices import devices, exchanges, ranks
from torchgauge.report.tables.trace_tables import details

NAMED = 8  # ranks
# What stands in for operators, by recorder.
_HOST_SPANS = dict.fromkeys(("JAX", "Proton"), "spans of the host")
_HOST_SPANS["torch.compile"] = "phases of compilation"


def title(trace: Trace) -> str:
    """Return the name of the trace's file or folder."""
    return trace.name


def document(trace: Trace, options: Options) -> Document:
    """Return the job's ranks side by side, then the details of one of them."""
    rank = chosen_rank(trace, options.rank)
    blocks: list[Block] = []
    if notable_findings := rank_findings(trace, rank):
        blocks.append(Findings(notable_findings))
    if len(trace.ranks) > 1:
        blocks.append(ranks(trace))
        if (exchanged := exchanges(trace)) is not None:
            blocks.append(exchanged)
        blocks.append(Heading(f"Rank {rank.rank}", rank.file))
    if rank.times:
        blocks.append(devices(rank))
    if rank.utilization is not None and rank.utilization.mfu is not None:
        blocks.append(utilization(rank.utilization))
    blocks += [*categories(rank.tree, roofs_of(rank)), *details(rank), Tree(rank.tree, options)]
    if rank.missing:
        blocks.append(Items("Not recorded", [("", sentence) for sentence in rank.missing]))
    if listed := rank_warnings(trace, rank):
        blocks.append(Warnings(listed))
    recorder = rank.contents.recorder
    how = f"recorded by {recorder}" if recorder else "recorded"
    return Document(
        title(trace), how, facts=Facts(list(facts(trace, rank))), blocks=blocks, names=(trace.name,)
    )


def chosen_rank(trace: Trace, rank: int | None = None) -> RankTrace:
    """Return the rank whose details are shown: the requested one, the straggler or the first."""
    straggler = trace.job.straggler if trace.job is not None else None
    number = straggler if rank is None else rank
    return next(
        (rank_trace for rank_trace in trace.ranks if rank_trace.rank == number), trace.ranks[0]
    )


def facts(trace: Trace, rank_trace: RankTrace) -> Iterator[tuple[str, str]]:
    """Yield what was recorded, as label and text."""
    used = {device_time.device for device_time in rank_trace.times}
    recorded = list(rank_trace.devices)
    names = dict.fromkeys(
        f"{device.name}, {units.size(device.memory, 3)}" if device.memory else device.name
        for device in [device for device in recorded if device.number in used] or recorded
    )
    yield "device", "; ".join(names) or "unknown"
    if rank_trace.versions:
        versions = rank_trace.versions.items()
        yield "software", ", ".join(f"{name} {version}" for name, version in versions)
    if rank_trace.world is not None and rank_trace.world > 1:
        rank_text = (
            f"rank {rank_trace.rank}" if len(trace.ranks) == 1 else f"{len(trace.ranks)} files"
        )
        yield "ranks", f"{rank_text} of {rank_trace.world}"
    contents = rank_trace.contents
    if rank_trace.part:
        yield "part", rank_trace.part
    yield "window", f"{units.time(rank_trace.window)}, {contents.events:,} events"
    host_spans = _HOST_SPANS.get(contents.recorder or "", "operators")
    parts = {
        host_spans: contents.operators,
        "launches": contents.launches,
        "kernels and copies": contents.device_work,
        "allocations": contents.memory,
    }
    text = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    yield "holds", text or "nothing that is known"


def rank_findings(trace: Trace, rank: RankTrace) -> list[Finding]:
    """Return the job's findings, then one rank's, titled with the rank where there are several."""
    prefix = f"Rank {rank.rank}: " if len(trace.ranks) > 1 else ""
    own_findings = (
        msgspec.structs.replace(finding, title=prefix + finding.title) for finding in rank.findings
    )
    return [*trace.findings, *own_findings]


def rank_warnings(trace: Trace, rank: RankTrace) -> list[MeasurementWarning]:
    """Return the warnings of the job and of one rank, and those of the other ranks' files."""
    own_warnings = (*trace.warnings, *rank.warnings, *rank.tree.warnings)
    return list(dict.fromkeys([*own_warnings, *_other_rank_warnings(trace, rank)]))


def _other_rank_warnings(trace: Trace, rank: RankTrace) -> Iterator[MeasurementWarning]:
    ranks: dict[MeasurementWarning, list[int | None]] = {}
    for other in trace.ranks:
        for warning in other.warnings if other is not rank else ():
            ranks.setdefault(warning, []).append(other.rank)
    for warning, numbers in ranks.items():
        named = ", ".join(map(str, numbers[:NAMED])) + " …" * (len(numbers) > NAMED)
        prefix = f"Rank{'s' * (len(numbers) > 1)} {named}: "
        yield msgspec.structs.replace(warning, message=prefix + warning.message)


COLUMNS = (
    Column("step", get=lambda rank: units.time(rank.step)),
    Column("work", get=lambda rank: units.time(rank.work)),
    Column("waiting", get=lambda rank: units.time(rank.waiting)),
    Column("communication", get=lambda rank: units.time(rank.communication)),
)
MFU = Column("MFU", get=lambda rank: units.percent(rank.mfu))


def ranks_document(ranks: Ranks, _options: Options) -> Document:
    """Return the times of each rank, and sentences about the straggler and missing ranks."""
    with_mfu = any(rank.mfu is not None for rank in ranks.ranks)
    columns = (*COLUMNS, MFU) if with_mfu else COLUMNS
    rows = [
        Row(
            f"{rank.number}",
            cells(columns, rank),
            tone="strong" if rank.number == ranks.straggler else "",
        )
        for rank in ranks.ranks
    ]
    blocks: list[Block] = [
        *verdict_items(ranks),
        Table(first="rank", columns=columns, rows=rows, tight=True),
    ]
    blocks += [Note(sentence, tight=True, level=1) for sentence in _sentences(ranks)]
    blocks += [Warnings(ranks.warnings, "Failed")] if ranks.warnings else []
    return Document(f"{ranks.world} ranks", "measured", blocks=blocks)


def _sentences(ranks: Ranks) -> Iterator[str]:
    if ranks.share == 0:
        yield "The ranks did not communicate while they were recorded: none waited for another."
    elif ranks.straggler is not None:
        lost = units.time(ranks.lost, 3)
        yield f"Rank {ranks.straggler} is the straggler: the others wait for it, {lost} of a step."
    elif len(ranks.ranks) > 1:
        yield "No rank is slower than the others."
    if ranks.share:
        yield (
            f"Communication is under way in {units.percent(ranks.share)} of the time; "
            f"ranks only wait for it in {units.percent(ranks.exposed)}."
        )
    if ranks.missing:
        yield f"No recorded steps of rank {', '.join(map(str, ranks.missing))}."
