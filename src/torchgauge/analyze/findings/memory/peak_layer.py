"""The layer in which the memory of a step is at its highest."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

# From this share of the peak on a layer's own tensors are worth to look at.
LARGE = 0.25


def _find(evidence: Evidence) -> Iterator[Finding]:
    memory = None if evidence.profile is None else evidence.profile.memory
    if memory is None or not memory.peak or not memory.peak_layer:
        return
    layer = next((node for node in evidence.nodes if node.row.path == memory.peak_layer), None)
    own = None if layer is None else layer.peak
    if layer is None or own is None or own < LARGE * memory.peak or own > memory.peak:
        return
    yield Finding(
        id="peak-layer",
        severity="info",
        title=f"Memory peaks in {memory.peak_layer}, which holds "
        f"{units.percent(own / memory.peak)} of it",
        evidence=f"{units.size(own)} of {units.size(memory.peak)} are tensors that this layer "
        f"makes{' in ' + memory.peak_operator if memory.peak_operator else ''}"
        f"{', in the ' + memory.peak_phase if memory.peak_phase else ''}.",
        remedy="Make its tensors smaller or fewer: work in place, or on a part of the batch or "
        "sequence at a time.",
        path=memory.peak_layer,
        node=layer.index,
        view="memory",
    )


RULE = Rule(
    "peak-layer",
    _find,
    source="https://docs.pytorch.org/docs/stable/torch_cuda_memory.html",
)
