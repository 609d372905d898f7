"""Many small copies to the device, each of which costs the host as much as a large one."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, operators_above
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node

SMALL = 16 * 1024  # bytes: PCIe moves them in about a microsecond, launching takes several
ENOUGH_COPIES = 50


def _find(evidence: Evidence) -> Iterator[Finding]:
    small = [
        calls
        for calls in evidence.kernels
        if "HtoD" in calls.name
        and calls.kernel.bytes is not None
        and calls.kernel.bytes < SMALL * calls.kernel.calls
    ]
    count = sum(calls.kernel.calls for calls in small)
    outermost: dict[int, Node] = {}
    for calls in small:
        above = operators_above(calls.node)
        if above:
            outermost.setdefault(above[-1].index, above[-1])
    time = evidence.within(sum(node.host_time or 0.0 for node in outermost.values()))
    if count < ENOUGH_COPIES or share(time, evidence.time) < NOTICEABLE:
        return
    longest = max(outermost.values(), key=lambda node: node.host_time or 0.0)
    size = sum(calls.kernel.bytes or 0 for calls in small) / count
    yield RULE.costs(
        time,
        evidence.time,
        title=f"{count:,} small copies to the device take the host {units.time(time)}",
        evidence=f"{units.size(size)} each on average, most of it by {longest.name}"
        + (f" in {longest.path}." if longest.path else "."),
        remedy="Pack them into one tensor and copy that, or make them on the device "
        "(torch.arange(…, device='cuda')).",
        node=longest,
    )


RULE = Rule(
    "small-copies",
    _find,
    source="https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/"
    "index.html#data-transfer-between-host-and-device",
    explains=("idle-host", "launch-bound"),
)
