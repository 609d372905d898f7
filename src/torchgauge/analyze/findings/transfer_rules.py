"""Copies between host and device that could be faster."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, operators_above
from torchgauge.analyze.findings.rule import NOTICEABLE, rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node


@rule(
    "pageable-copies",
    source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    jax_remedy="Leave data on the device, or move it while the step before runs "
    "(jax.device_put returns at once).",
)
def pageable_copies(evidence: Evidence) -> Iterator[Finding]:
    """Find copies from or to memory of the host that is not pinned."""
    copies = [calls for calls in evidence.kernels if calls.kernel.pageable]
    time = sum(calls.time for calls in copies)
    if share(time, evidence.device_time) < NOTICEABLE:
        return
    count = sum(calls.kernel.calls for calls in copies)
    yield pageable_copies.finding(
        "warning",
        title=f"{count:,} copies use pageable memory of the host",
        evidence=f"{units.time(time)}, {units.percent(time / evidence.device_time)} of the "
        "device's time; each stops the host as well.",
        remedy="Pin it: DataLoader(pin_memory=True), and .to(device, non_blocking=True).",
        time=time,
        worth=time,
        view="tables",
    )


SMALL = 16 * 1024  # bytes: PCIe moves them in about a microsecond, launching takes several
ENOUGH_COPIES = 50


@rule(
    "small-copies",
    source="https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/"
    "index.html#data-transfer-between-host-and-device",
    explains=("idle-host", "launch-bound"),
)
def small_copies(evidence: Evidence) -> Iterator[Finding]:
    """Find many small copies to the device, each as dear to the host as a large one."""
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
    yield small_copies.costs(
        (time, evidence.time),
        title=f"{count:,} small copies to the device take the host {units.time(time)}",
        evidence=f"{units.size(size)} each on average, most of it by {longest.name}"
        + (f" in {longest.path}." if longest.path else "."),
        remedy="Pack them into one tensor and copy that, or make them on the device "
        "(torch.arange(…, device='cuda')).",
        node=longest,
    )
