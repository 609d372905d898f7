"""Activations that a training step keeps for its backward pass and that fill its memory."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

DOMINANT_SHARE = 0.5  # of the peak


def _find(evidence: Evidence) -> Iterator[Finding]:
    memory = None if evidence.profile is None else evidence.profile.memory
    if memory is None or memory.step != "training" or not memory.peak:
        return
    activations = memory.activations
    if activations < DOMINANT_SHARE * memory.peak:
        return
    layers = [node for node in evidence.leaves if node.retained_for_backward]
    largest = max(layers, key=lambda node: node.retained_for_backward or 0, default=None)
    yield Finding(
        id="kept-activations",
        severity="info",
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


RULE = Rule(
    "kept-activations",
    _find,
    source="https://docs.pytorch.org/docs/stable/checkpoint.html",
    explains=("largest-part-of-memory",),
)
