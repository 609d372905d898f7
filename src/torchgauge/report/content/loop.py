"""The timeline of a loop: its steps, what was captured, where the time went."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.memory.memory_remedies import memory_remedies
from torchgauge.records.memory.memory import OutOfMemory, RunningPhase
from torchgauge.records.timeline.loop import Captured, Loop
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.host_delay import LOADING
from torchgauge.report.content import document as doc
from torchgauge.report.content.findings import most_important, verdict_items
from torchgauge.report.content.section import Row, Section, utilization
from torchgauge.report.notebook import charts
from torchgauge.report.tables.alive_tensors import tensor_table
from torchgauge.report.tables.category_table import categories
from torchgauge.report.tables.compilation_tables import costs_table
from torchgauge.report.tables.line_table import traced_lines
from torchgauge.report.tables.loader_waits import waits
from torchgauge.report.tables.loop_memory import memory_blocks

ENDS = {
    "": "no step was seen to end",
    "call": "each ended by a call of the model",
    "optimizer": "each ended by the optimizer",
    "explicit": "each ended by run.step()",
}


_PHASES: dict[RunningPhase, str] = {
    "loading": "as the data loader ran",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "recompute": "as a checkpoint ran again",
    "optimizer": "in the optimizer's step",
    "outside": "in the loop's own code",
}


def title(loop: Loop) -> str:
    """Return which modules the loop called."""
    return f"Loop of {', '.join(loop.roots) or 'no module'}"


def document(loop: Loop, options: doc.Options) -> doc.Document:
    """Return how long steps took, and where the time of one went.

    Of a loop that ran out of memory, why, and no times but those of the steps.
    """
    ended = loop.ran_out is not None
    blocks: list[doc.Block] = (
        [] if ended or loop.without_model else [*verdict_items(loop), steps(loop)]
    )
    for event in loop.out_of_memory:
        blocks += [memory_ran_out(event)]
        if event.tensors:
            total = sum(tensor.size for tensor in event.tensors)
            blocks.append(tensor_table("Alive then", event.tensors, total))
    if ended and not loop.without_model:
        blocks.append(steps(loop))
    if loop.memory is not None:
        blocks += memory_blocks(loop.memory)
    if not ended:
        blocks += _times(loop, options)
    if loop.functions is not None:
        blocks += traced_lines(loop.functions)
    if loop.all_warnings:
        heading = "Warnings" if loop.complete else "Failed and warnings"
        blocks.append(doc.Warnings(loop.all_warnings, heading))
    if loop.without_model:
        return doc.Document("A program that called no model", blocks=blocks)
    rank = f", rank {loop.rank.number} of {loop.rank.world}" if loop.rank is not None else ""
    count = f"{loop.count:,} step{'s' if loop.count != 1 else ''}"
    heading = f"Loop of {', '.join(loop.roots) or 'no module was called'}"
    return doc.Document(
        heading,
        line=f"{count}, {ENDS[loop.by]}{rank}",
        blocks=blocks,
        conclusion=[] if ended else most_important(loop),
        charts=charts.loop(loop),
    )


def _times(loop: Loop, options: doc.Options) -> Iterator[doc.Block]:
    if loop.utilization is not None:
        yield utilization(loop.utilization, rates=True)
    yield from waits(loop.loader_waits)
    if loop.compilation_costs:
        yield costs_table(loop.compilation_costs)
    if loop.tree is not None:
        yield doc.Tree(loop.tree, options)
        if note := loading_note(loop, loop.tree):
            yield doc.Note(note, "faint")
        yield from categories(loop.tree)


def loading_note(loop: Loop, tree: Tree) -> str:
    """Say that the tree's data loading is not of the steps that its share elsewhere is of."""
    if loop.loading is None or all((r.kind, r.name) != ("bucket", LOADING) for r in tree.rows):
        return ""
    count = f"{loop.loader_waits[0].steps:,} steps without a profiler"
    share = units.percent(loop.loading)
    return f"Here {LOADING} is that of the recorded steps; of the {count} it takes {share}."


def steps(loop: Loop) -> Section:
    """Return how long the steps took, and how many were captured."""
    bare = Row("bare", units.time(loop.bare), "median, without a profiler")
    rows = [bare, *[_measuring(loop)] * (loop.memory is None)]
    recorded = loop.median("record")
    if recorded is not None:
        rows.append(Row("recorded", units.time(recorded), "median"))
    watched = loop.median("memory")
    if watched is not None:
        ratio = f", {watched / loop.bare:.1f} times a bare one" if loop.bare else ""
        rows.append(Row("watched", units.time(watched), f"median, memory{ratio}"))
    rows.append(Row("captured", _captured(loop.captured), _capture_note(loop.captured)))
    if loop.communication:
        note = f"the loop waited for {units.time(loop.waiting)} of it"
        rows.append(Row("communicated", units.time(loop.communication), note))
    if loop.copied:
        note = "batches and others, of the device's time in a recorded step"
        rows.append(Row("copied to device", units.time(loop.copied), note))
    return Section("Steps", "measured", tuple(rows))


def _measuring(loop: Loop) -> Row:
    """Return what the clocks take of a step."""
    cost = loop.measuring_cost
    if cost is None:
        return Row("clocks", "unknown", "a step; too few independent steps without them")
    count = len(loop.durations_of(loop.stretches, "paused"))
    interval = units.times(cost.low, cost.high, 3)
    note = f"a step: {interval}, by {count:,} without, which are but counted"
    return Row("clocks", units.time((cost.low + cost.high) / 2, 3), note)


def memory_ran_out(event: OutOfMemory) -> Section:
    """Return where memory ran out, and what it was used for."""
    ended = {True: "the program went on", False: "it ended the program", None: ""}[event.caught]
    layer = event.layer or "outside of layers, or not known"
    phase = "" if event.phase is None else f"{_PHASES[event.phase]}, "
    phase += f"{event.function}, " * bool(event.function)
    phase += f"the next after {event.after}, " * bool(event.after and not event.layer)
    rows = [
        Row("in", layer, f"{phase}after {event.step:,} steps{f'; {ended}' if ended else ''}"),
        Row("asked for", units.size(event.requested), "" if event.requested else "not told"),
        Row("free", units.size(event.free)),
        Row("tensors", units.size(event.total), "alive"),
    ]
    rows += [Row(f"  {part}", units.size(size)) for part, size in event.parts.items()]
    if event.snapshot:
        rows.append(Row("snapshot", event.snapshot, f"torchgauge snapshot {event.snapshot}"))
    if event.limit is not None:
        rows[1] = Row("limit", units.size(event.limit), "of all processes that share it")
    heading = "Memory ran out" if event.limit is None else "Memory nearly ran out"
    notes = (event.message, *(f"Try {remedy}." for remedy in memory_remedies(event)))
    return Section(f"{heading} on {event.device}", event.how, tuple(rows), notes)


def _captured(captured: Captured) -> str:
    requested = "" if captured.requested is None else f" of {captured.requested:,}"
    return f"{captured.recorded:,}{requested} steps"


def _capture_note(captured: Captured) -> str:
    parts = [captured.reason] if captured.reason else []
    if captured.events is not None and captured.memory is not None:
        parts.append(
            f"{captured.events:,} events and {units.size(captured.memory, 3)} of memory a step, "
            f"budget {units.size(captured.budget, 3)}"
        )
    return "; ".join(parts)
