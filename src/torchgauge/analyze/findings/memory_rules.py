"""What takes memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, noticeable, rule, severity
from torchgauge.analyze.latency.noise import FAULTING, PAGE_FAULT
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node, base_name


@rule(
    "allocation-churn",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
    "#switch-memory-allocator",
)
def allocation_churn(evidence: Evidence) -> Iterator[Finding]:
    """Find memory of the host that each call requests from the system again."""
    latency = None if evidence.profile is None else evidence.profile.latency
    runs = () if latency is None else latency.processes
    runs_with_faults = [run for run in runs if FAULTING in run.yardstick and run.median > 0]
    if not runs_with_faults or not evidence.runs_on_host:
        return
    # Processes differ by how blocks happen to lie: the middle one counts.
    faulting = statistics.median(run.yardstick[FAULTING] / run.median for run in runs_with_faults)
    count = statistics.median(run.yardstick[FAULTING] for run in runs_with_faults) / PAGE_FAULT
    if not NOTICEABLE <= faulting <= 1:
        return
    allocations = None if evidence.tree is None else evidence.tree.root.allocations
    yield allocation_churn.finding(
        severity(faulting),
        title="Memory requested from the system again takes about "
        f"{units.percent(faulting)} of a call",
        evidence=f"{count:,.0f} page faults, at a microsecond each"
        + (f"; {units.size(allocations)} are allocated." if allocations else "."),
        remedy="Let malloc keep what is freed: MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_="
        "17179869184, or jemalloc; `advise` measures it (malloc-keep).",
        time=faulting * evidence.time,
        worth=faulting * evidence.time,
        view="memory",
    )


KEPT_ACTIVATIONS_DOMINANT_SHARE = 0.5  # of the peak


@rule(
    "kept-activations",
    source="https://docs.pytorch.org/docs/stable/checkpoint.html",
    explains=("largest-part-of-memory",),
)
def kept_activations(evidence: Evidence) -> Iterator[Finding]:
    """Find activations that a training step keeps for its backward pass and that fill memory."""
    memory = None if evidence.profile is None else evidence.profile.memory
    if memory is None or memory.step != "training" or not memory.peak:
        return
    activations = memory.activations
    if activations < KEPT_ACTIVATIONS_DOMINANT_SHARE * memory.peak:
        return
    layers = [node for node in evidence.leaves if node.retained_for_backward]
    largest = max(layers, key=lambda node: node.retained_for_backward or 0, default=None)
    yield kept_activations.finding(
        title=f"Activations are {units.percent(activations / memory.peak)} of the peak memory",
        evidence=f"{units.size(activations)} of {units.size(memory.peak)} alive at the peak"
        + (
            f"; {largest.path} keeps most for the backward pass, "
            f"{units.size(largest.retained_for_backward)}."
            if largest is not None
            else "."
        ),
        remedy="If memory is short: torch.utils.checkpoint around repeated layers, autocast to "
        "bfloat16, or a smaller batch with accumulated gradients.",
        path="" if largest is None else largest.path,
        view="memory",
    )


TRAINING_STATE_DOMINANT_SHARE = 0.5  # of the peak


@rule(
    "training-state",
    source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    explains=("largest-part-of-memory",),
)
def training_state(evidence: Evidence) -> Iterator[Finding]:
    """Find gradients and the optimizer's state that fill the memory of a training step."""
    memory = None if evidence.profile is None else evidence.profile.memory
    if memory is None or memory.step != "training" or not memory.peak:
        return
    state = memory.gradients + memory.optimizer
    if state < TRAINING_STATE_DOMINANT_SHARE * memory.peak:
        return
    yield training_state.finding(
        title=f"Gradients and the optimizer's state are {units.percent(state / memory.peak)} of "
        "the peak memory",
        evidence=f"{units.size(memory.gradients)} and {units.size(memory.optimizer)} beside "
        f"{units.size(memory.parameters)} of parameters, of {units.size(memory.peak)}.",
        remedy="If memory is short: an optimizer with less state (8-bit or factored), or divide "
        "it over processes with FSDP (fully_shard).",
        view="memory",
    )


# From this share of the peak on a layer's own tensors are worth to look at.
LARGE = 0.25


@rule("peak-layer", source="https://docs.pytorch.org/docs/stable/torch_cuda_memory.html")
def peak_layer(evidence: Evidence) -> Iterator[Finding]:
    """Find the layer in which the memory of a step is at its highest."""
    memory = None if evidence.profile is None else evidence.profile.memory
    if memory is None or not memory.peak or not memory.peak_layer:
        return
    layer = next((node for node in evidence.nodes if node.row.path == memory.peak_layer), None)
    own = None if layer is None else layer.peak
    if layer is None or own is None or own < LARGE * memory.peak or own > memory.peak:
        return
    yield peak_layer.finding(
        title=f"Memory peaks in {memory.peak_layer}, which holds "
        f"{units.percent(own / memory.peak)} of it",
        evidence=f"{units.size(own)} of {units.size(memory.peak)} are tensors that this layer "
        f"makes{' in ' + memory.peak_operator if memory.peak_operator else ''}"
        f"{', in the ' + memory.peak_phase if memory.peak_phase else ''}.",
        remedy="Make its tensors smaller or fewer: work in place, or on a part of the batch or "
        "sequence at a time.",
        node=layer,
        view="memory",
    )


# A fifth and less is what rounding to segments of 2 and 20 MiB leaves.
UNUSED = 0.3
# Of less of the device's memory nothing fails.
FILLED = 0.5


@rule(
    "unused-reserve",
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html"
    "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
)
def unused_reserve(evidence: Evidence) -> Iterator[Finding]:
    """Find memory that the allocator took from a device and that no tensor uses."""
    if evidence.rank is None:
        return
    capacities = {device.number: device.memory for device in evidence.rank.devices}
    for use in evidence.rank.memory:
        capacity = None if use.device is None else capacities.get(use.device)
        if use.reserved is None or not capacity or use.reserved < FILLED * capacity:
            continue
        unused = use.reserved - use.peak
        if unused < UNUSED * use.reserved:
            continue
        yield unused_reserve.finding(
            "warning",
            title=f"{evidence.called(use.device)}: {units.percent(unused / use.reserved)} of the "
            "reserved memory holds no tensor even at the peak",
            evidence=f"{units.size(use.reserved)} reserved of {units.size(capacity)}, at most "
            f"{units.size(use.peak)} allocated in the window: fragments, or what an earlier peak "
            "left in the cache.",
            remedy="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True keeps memory in one piece; "
            "a memory snapshot shows the fragments: `torchgauge snapshot FILE`.",
            view="memory",
        )


_ZERO = ("aten::zero_", "aten::_foreach_zero_")


@rule(
    "zeroed-gradients",
    source="https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
)
def zeroed_gradients(evidence: Evidence) -> Iterator[Finding]:
    """Find gradients that are filled with zeros in place of being dropped."""
    zeroed = [node for node in evidence.nodes if _zeroes(node) and not _zeroes(node.parent)]
    calls = sum(node.calls for node in zeroed)
    if not (time := noticeable(evidence, (evidence.total_time(node) for node in zeroed))):
        return
    yield zeroed_gradients.costs(
        (time, evidence.time),
        title=f"Filling gradients with zeros takes {evidence.part(time)}",
        evidence=f"{units.time(time)} in {calls:,} calls of {zeroed[0].name}; the backward pass "
        "adds to the zeros instead of writing.",
        remedy="optimizer.zero_grad(set_to_none=True), torch's default.",
        search="aten::zero_",
    )


def _zeroes(node: Node | None) -> bool:
    return node is not None and node.row.phase == "zero_grad" and base_name(node.name) in _ZERO


@rule("largest-part-of-memory")
def largest_part(evidence: Evidence) -> Iterator[Finding]:
    """Find what most of the peak memory is."""
    memory = None if evidence.profile is None else evidence.profile.memory
    if memory is None or not memory.peak:
        return
    name, part = max(memory.parts.items(), key=lambda item: item[1])
    yield largest_part.finding(
        title=f"{name.capitalize()}: {units.percent(part / memory.peak)} of the peak memory",
        evidence=f"{units.size(part)} of the {units.size(memory.peak)} alive at the peak.",
        view="memory",
    )
