"""Gradients and the optimizer's state that fill the memory of a training step."""

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
    state = memory.gradients + memory.optimizer
    if state < DOMINANT_SHARE * memory.peak:
        return
    yield Finding(
        id="training-state",
        severity="info",
        title=f"Gradients and the optimizer's state are {units.percent(state / memory.peak)} of "
        "the peak memory",
        evidence=f"{units.size(memory.gradients)} and {units.size(memory.optimizer)} beside "
        f"{units.size(memory.parameters)} of parameters, of {units.size(memory.peak)}.",
        remedy="If memory is short: an optimizer with less state (8-bit or factored), or divide "
        "it over processes with FSDP (fully_shard).",
        view="memory",
    )


RULE = Rule(
    "training-state",
    _find,
    source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    explains=("largest-part-of-memory",),
)
