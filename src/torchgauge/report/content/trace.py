"""What a recorded trace says: what stands out, where the devices' time went, and the tree."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from torchgauge import units
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.ranks import Ranks
from torchgauge.records.trace.trace import RankTrace, Trace
from torchgauge.records.trace.trace_diff import Changes, TraceDiff, TraceSide
from torchgauge.report.content import document as doc
from torchgauge.report.content.comparison import PLACES, differences, relative, sides, signed
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


def document(trace: Trace, options: doc.Options) -> doc.Document:
    """Return the job's ranks side by side, then the details of one of them."""
    rank = chosen_rank(trace, options.rank)
    blocks: list[doc.Block] = []
    if notable_findings := rank_findings(trace, rank):
        blocks.append(doc.Findings(notable_findings))
    if len(trace.ranks) > 1:
        blocks.append(ranks(trace))
        if (exchanged := exchanges(trace)) is not None:
            blocks.append(exchanged)
        blocks.append(doc.Heading(f"Rank {rank.rank}", rank.file))
    if rank.times:
        blocks.append(devices(rank))
    if rank.utilization is not None and rank.utilization.mfu is not None:
        blocks.append(utilization(rank.utilization))
    blocks += [*categories(rank.tree, roofs_of(rank)), *details(rank), doc.Tree(rank.tree, options)]
    if rank.missing:
        blocks.append(doc.Items("Not recorded", [("", sentence) for sentence in rank.missing]))
    if listed := rank_warnings(trace, rank):
        blocks.append(doc.Warnings(listed))
    recorder = rank.contents.recorder
    how = f"recorded by {recorder}" if recorder else "recorded"
    return doc.Document(
        title(trace),
        how,
        facts=doc.Facts(list(facts(trace, rank))),
        blocks=blocks,
        names=(trace.name,),
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
        f"{device.name}, {units.size(device.memory, 3)}".removeprefix(", ")
        if device.memory
        else device.name
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
    if graphs := rank_trace.graphs:
        unsized = graphs.without_sizes
        launches = (
            f"{graphs.launches:,} launches of {graphs.work:,} kernels and copies, "
            f"{graphs.joined:,} with the operators of their capture"
            + (f", {unsized:,} without sizes: captures of several fit" if unsized else "")
        )
        captured = f"{graphs.captured:,} captured"
        sentences = [launches] * bool(graphs.launches) + [captured] * bool(graphs.captured)
        yield "CUDA graphs", ", ".join(sentences)


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
    doc.Column("step", get=lambda rank: units.time(rank.step)),
    doc.Column("work", get=lambda rank: units.time(rank.work)),
    doc.Column("waiting", get=lambda rank: units.time(rank.waiting)),
    doc.Column("communication", get=lambda rank: units.time(rank.communication)),
)
MFU = doc.Column("MFU", get=lambda rank: units.percent(rank.mfu))


def ranks_document(ranks: Ranks, _options: doc.Options) -> doc.Document:
    """Return the times of each rank, and sentences about the straggler and missing ranks."""
    with_mfu = any(rank.mfu is not None for rank in ranks.ranks)
    columns = (*COLUMNS, MFU) if with_mfu else COLUMNS
    rows = [
        doc.Row(
            f"{rank.number}",
            doc.cells(columns, rank),
            tone="strong" if rank.number == ranks.straggler else "",
        )
        for rank in ranks.ranks
    ]
    blocks: list[doc.Block] = [
        *verdict_items(ranks),
        doc.Table(first="rank", columns=columns, rows=rows, tight=True),
    ]
    blocks += [doc.Note(sentence, tight=True, level=1) for sentence in _sentences(ranks)]
    blocks += [doc.Warnings(ranks.warnings, "Failed")] if ranks.warnings else []
    return doc.Document(f"{ranks.world} ranks", "measured", blocks=blocks)


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


TITLES = {
    "layers": "Layers",
    "operators": "Operators",
    "shapes": "Operators by shape",
    "kernels": "Kernels",
}
PARTS = (doc.Column("baseline"), doc.Column("current"), doc.Column("adds"), doc.Column("change"))
LONGEST = 40


def diff_title(diff: TraceDiff) -> str:
    """Return the names of both traces."""
    return f"{diff.baseline.label} → {diff.current.label}"


def diff_document(diff: TraceDiff, options: doc.Options) -> doc.Document:
    """Return what differs around two traces, then what changed where."""
    blocks: list[doc.Block] = differences(diff.differences)
    if diff.parts:
        blocks.append(_parts(diff))
    if any(change.contribution for change in diff.delays):
        blocks.append(_delays(diff))
    blocks += [
        _places(changes, options.top)
        for changes in diff.tables
        # That of layers says something only where there is more than the model.
        if len(changes.places) > 1 or changes.kind != "layers"
    ]
    blocks += [doc.Warnings(diff.warnings)] if diff.warnings else []
    facts = sides((diff.baseline, diff.current), side_details)
    return doc.Document("Two traces", "recorded", facts=facts, blocks=blocks)


def side_details(side: TraceSide) -> str:
    """Return a side's device, rank and number of steps."""
    parts = [side.device]
    if side.rank is not None:
        parts.append(f"rank {side.rank}" + (f" of {side.world}" if side.world else ""))
    if side.steps > 1:
        parts.append(f"{side.steps} steps")
    return ", ".join(part for part in parts if part)


def _parts(diff: TraceDiff) -> doc.Table:
    """Return how each part of the devices' time changed, and what the times are of."""
    rows = [
        doc.Row(part.part, _texts(diff, part.baseline, part.current, part.contribution), 1)
        for part in diff.parts
    ]
    windows = (diff.baseline.window, diff.current.window)
    rows.append(doc.Row("window", _texts(diff, *windows, diff.window), tone="strong"))
    return doc.Table(
        title="Time of the devices", how=f"measured, {_scope(diff)}", columns=PARTS, rows=rows,
        layout="fitted",
    )  # fmt: skip


def _scope(diff: TraceDiff) -> str:
    several = max(diff.baseline.steps, diff.current.steps) > 1
    return "of a step" if several else "of the whole window"


def _delays(diff: TraceDiff) -> doc.Table:
    """Return what kept the hosts from launching work, and the costliest spans of each cause."""
    rows = [
        doc.Row(change.cause, _texts(diff, change.baseline, change.current, change.contribution), 1)
        for change in diff.delays
    ]
    notes = tuple(
        f"{change.cause}: {_renamed(change.baseline_name, change.current_name)}"
        for change in diff.delays
    )
    subject = "time that a device waited for it" if diff.parts else "time of the host"
    return doc.Table(
        title="What kept the host from launching", how=f"measured, {subject}, {_scope(diff)}",
        columns=PARTS, rows=rows, notes=notes, layout="fitted",
    )  # fmt: skip


def _renamed(old: str, new: str) -> str:
    """Return the name of both sides, or that of each: "a → b"."""
    return old if old == new else f"{old or 'none'} → {new or 'none'}"


def _texts(diff: TraceDiff, old: float, new: float, adds: float) -> dict[str, doc.Value]:
    return {
        "baseline": units.time(old),
        "current": units.time(new),
        "adds": signed(adds),
        "change": relative(new / old - 1) if old and diff.timing_comparable else "",
    }


def _places(changes: Changes, top: int) -> doc.Table:
    """Return the places that changed, those that add most first, and what the others add."""
    listed = [place for place in changes.places if place.contribution or place.work_changed][:top]
    rows = [
        doc.Row(place.name or "(the model itself)", doc.cells(PLACES, place), 1) for place in listed
    ]
    note = f"none of {len(changes.places)} changed"
    if listed or changes.total:
        other_change = changes.total - sum(place.contribution for place in listed)
        note = f"{len(listed)} of {len(changes.places)}; all others {signed(other_change)}, "
        note += f"together {signed(changes.total)}"
    return doc.Table(
        title=TITLES[changes.kind], how="by their own time", columns=PLACES, rows=rows,
        recorded=True, notes=(note,), layout="fitted", longest=LONGEST,
    )  # fmt: skip
