"""What grows in a watched loop, outlives its step, or fills memory in spite of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.memory.loop_memory import Share

NOTED_GROWTH = 1000  # bytes a step: numbers that are kept for a curve are fewer


@rule(
    "kept-memory",
    source="https://docs.pytorch.org/docs/stable/notes/faq.html"
    "#my-model-reports-cuda-runtime-error-2-out-of-memory",
)
def kept_memory(evidence: Evidence) -> Iterator[Finding]:
    """Find memory of a watched loop that grows with each step, or activations of an earlier one."""
    memory = None if evidence.loop is None else evidence.loop.memory
    if memory is None:
        return
    peak, number = memory.highest.peak, memory.highest.number
    groups = [group for group in memory.outliving if group.growth]
    title, severe = f"Memory grows by {units.size(memory.growth)} a step", severity(1)
    if memory.growth < NOTED_GROWTH:
        # What an earlier one made once, as buckets of gradients, is no graph that was replaced.
        groups = [
            group
            for group in memory.at_peak
            if group.part == "activations" and group.steps[-1] == number - 1
        ]
        part = share(sum(group.size for group in groups), peak)
        title = f"Activations of an earlier step are {units.percent(part)} of the peak memory"
        severe = severity(part)
        if part < NOTICEABLE:
            return
    largest = next((group for group in groups if group.holder), groups[0])
    variable = f"{largest.holder} in {largest.held_in}" if largest.holder else "what was not found"
    yield kept_memory.finding(
        severe,
        title=f"{title}, held by {'the graph of ' * largest.by_graph}{variable}",
        evidence=f"{units.size(largest.size)} in {largest.count:,} tensors, made by "
        f"{largest.operator} in {largest.layer or 'no layer'}, {largest.line}.",
        remedy="Keep values without their graph (loss.item(), output.detach()), and evaluate under "
        "torch.no_grad()."
        if largest.by_graph
        else "Release it before the next forward (del, or a function for the step), or limit how "
        "much is kept.",
        path=largest.layer,
        view="memory",
    )


_REMEDIES: dict[Share, str] = {
    "states": "They save activations alone: an optimizer with less state, or fully_shard.",
    "running segment": "Use one checkpoint for each of several blocks, not one around all.",
    "kept in segments": "Look for the hook, attribute or list that holds it.",
    "outside of segments": "Put a checkpoint around that layer too, or make less there.",
    "of no layer": "Keep less beside the model, as inputs and losses.",
}


@rule("idle-checkpoints", source="https://docs.pytorch.org/docs/stable/checkpoint.html")
def idle_checkpoints(evidence: Evidence) -> Iterator[Finding]:
    """Find activation checkpoints of a watched loop that lower its peak little, and why."""
    memory = None if evidence.loop is None else evidence.loop.memory
    checkpoints = None if memory is None else memory.checkpoints
    if memory is None or checkpoints is None:
        return
    largest, size = next(iter(checkpoints.shares.items()))
    if largest not in _REMEDIES or (largest == "running segment" and checkpoints.segments > 1):
        return
    peak = memory.highest.peak
    layer = f", most by {checkpoints.layer}" if checkpoints.layer and largest != "states" else ""
    yield idle_checkpoints.finding(
        title=f"Checkpoints lower the peak little: {units.percent(size / peak)} of it is {largest}"
        f"{layer}",
        evidence=f"{units.size(size)} of {units.size(peak)}; segments that ran again made "
        f"{units.size(checkpoints.recomputed)}.",
        remedy=_REMEDIES[largest],
        path=checkpoints.layer,
        view="memory",
    )
