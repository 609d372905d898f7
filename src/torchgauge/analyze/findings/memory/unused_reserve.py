"""Memory that the allocator took from a device and that no tensor uses."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

# A fifth and less is what rounding to segments of 2 and 20 MiB leaves.
UNUSED = 0.3
# Of less of the device's memory nothing fails.
FILLED = 0.5


def _find(evidence: Evidence) -> Iterator[Finding]:
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
        yield Finding(
            id="unused-reserve",
            severity="warning",
            title=f"{evidence.called(use.device)}: {units.percent(unused / use.reserved)} of the "
            "reserved memory holds no tensor even at the peak",
            evidence=f"{units.size(use.reserved)} reserved of {units.size(capacity)}, at most "
            f"{units.size(use.peak)} allocated in the window: fragments, or what an earlier peak "
            "left in the cache.",
            remedy="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True keeps memory in one piece; "
            "a memory snapshot shows the fragments: `torchgauge snapshot FILE`.",
            view="memory",
        )


RULE = Rule(
    "unused-reserve",
    _find,
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html"
    "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
)
