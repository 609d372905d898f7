"""Long kernels with fewer blocks than the device has multiprocessors."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, KernelCalls, short_name
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity, share
from torchgauge.records.finding import Finding

# Seconds: a shorter kernel takes what any launch takes, whatever its grid.
LONG = 10e-6


def _find(evidence: Evidence) -> Iterator[Finding]:
    idle_shares = [(_idle_share(evidence, calls), calls) for calls in evidence.kernels]
    small = [(idle, calls) for idle, calls in idle_shares if idle > 0]
    time = evidence.within(sum(calls.time for _, calls in small))
    worth = min(sum(idle * calls.time for idle, calls in small), time)
    if share(worth, evidence.time) < NOTICEABLE:
        return
    _, longest = max(small, key=lambda pair: pair[0] * pair[1].time)
    blocks = math.prod(longest.kernel.grid or ())
    yield Finding(
        id="small-grids",
        severity=severity(share(worth, evidence.time)),
        title=f"Kernels that leave multiprocessors without work take "
        f"{units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)} in kernels of at least 10 µs with fewer blocks than "
        f"multiprocessors; most of it in {short_name(longest.name)}, {blocks:,} blocks on "
        f"{_multiprocessors(evidence, longest)}.",
        remedy="Give each launch more to do: a larger batch, or several such calls as one "
        "(batched products, grouped convolutions).",
        time=time,
        worth=worth,
        path=longest.node.path,
        node=longest.node.index,
        view="tables",
    )


def _idle_share(evidence: Evidence, calls: KernelCalls) -> float:
    """Return the share of multiprocessors that get no block of a long kernel."""
    multiprocessors = _multiprocessors(evidence, calls)
    if not calls.computes or not calls.kernel.grid or not multiprocessors:
        return 0.0
    if calls.kernel.quantile(0.5) < LONG:
        return 0.0
    return max(1 - math.prod(calls.kernel.grid) / multiprocessors, 0.0)


def _multiprocessors(evidence: Evidence, calls: KernelCalls) -> int:
    """Return how many multiprocessors an NVIDIA device has: AMD's grids are not in blocks."""
    devices = () if evidence.rank is None else evidence.rank.devices
    for device in devices:
        if device.number == calls.kernel.device and not device.name.startswith("AMD"):
            return device.multiprocessors or 0
    return 0


RULE = Rule(
    "small-grids",
    _find,
    source="https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/"
    "index.html#thread-and-block-heuristics",
)
