"""Kernels that leave a part of the device unused."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import PRODUCTS, Evidence, KernelCalls, short_name
from torchgauge.analyze.findings.rule import NOTICEABLE, noticeable, rule, severity, share
from torchgauge.analyze.work.categories import category
from torchgauge.records.finding import Finding

# Seconds: a shorter kernel takes what any launch takes, whatever its grid.
LONG = 10e-6


@rule(
    "small-grids",
    source="https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/"
    "index.html#thread-and-block-heuristics",
)
def small_grids(evidence: Evidence) -> Iterator[Finding]:
    """Find long kernels with fewer blocks than the device has multiprocessors."""
    idle_shares = [(_idle_share(evidence, calls), calls) for calls in evidence.kernels]
    small = [(idle, calls) for idle, calls in idle_shares if idle > 0]
    time = evidence.within(sum(calls.time for _, calls in small))
    worth = min(sum(idle * calls.time for idle, calls in small), time)
    if share(worth, evidence.time) < NOTICEABLE:
        return
    _, longest = max(small, key=lambda pair: pair[0] * pair[1].time)
    blocks = math.prod(longest.kernel.grid or ())
    yield small_grids.finding(
        severity(share(worth, evidence.time)),
        title=f"Kernels that leave multiprocessors without work take {evidence.part(time)}",
        evidence=f"{units.time(time)} in kernels of at least 10 µs with fewer blocks than "
        f"multiprocessors; most of it in {short_name(longest.name)}, {blocks:,} blocks on "
        f"{_multiprocessors(evidence, longest)}.",
        remedy="Give each launch more to do: a larger batch, or several such calls as one "
        "(batched products, grouped convolutions).",
        time=time,
        worth=worth,
        node=longest.node,
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


_WARP = 32
# Of more waves the last one is a small part.
MOST_WAVES = 4


@rule(
    "partial-waves",
    source="https://docs.nvidia.com/deeplearning/performance/"
    "dl-performance-matrix-multiplication/index.html#wave-quant",
)
def partial_waves(evidence: Evidence) -> Iterator[Finding]:
    """Find products whose blocks fill the device a whole number of times and a little more."""
    counted = [(waves, calls) for calls in evidence.kernels if (waves := _waves(evidence, calls))]
    partial = [(_loss(waves), waves, calls) for waves, calls in counted if 1 < waves <= MOST_WAVES]
    worth = sum(loss * calls.time for loss, _, calls in partial)
    if share(worth, evidence.time) < NOTICEABLE:
        return
    time = evidence.within(sum(calls.time for _, _, calls in partial))
    _, waves, longest = max(partial, key=lambda entry: entry[0] * entry[2].time)
    yield partial_waves.finding(
        title=f"Last waves of products leave the device idle for up to "
        f"{units.percent(min(worth, time) / evidence.time)} of the time",
        evidence=f"{short_name(longest.name)}: {math.prod(longest.kernel.grid or ()):,} blocks are "
        f"{units.significant(waves, 3)} times what the device holds at once; "
        f"{units.time(longest.time)} in {longest.kernel.calls:,} calls.",
        remedy="Choose sizes (batch, sequence, width) whose tiles fill the device a whole number "
        "of times; torch.compile(mode='max-autotune') tries other tiles.",
        time=time,
        worth=min(worth, time),
        node=longest.node,
        view="tables",
    )


def _loss(waves: float) -> float:
    """Return the share of the time in which the last wave leaves multiprocessors empty, at most."""
    return 1 - waves / math.ceil(waves)


def _waves(evidence: Evidence, calls: KernelCalls) -> float | None:
    """Return how many times a product's blocks fill the device; None where it is not known."""
    kernel = calls.kernel
    if kernel.limiter in (None, "grid") or not (kernel.grid and kernel.block and kernel.occupancy):
        return None
    if category(calls.name) not in PRODUCTS:
        return None
    for device in () if evidence.rank is None else evidence.rank.devices:
        if device.number == kernel.device and device.multiprocessors and device.threads:
            warps = math.ceil(math.prod(kernel.block) / _WARP)
            resident = round(kernel.occupancy * (device.threads // _WARP) / warps)
            if resident:
                return math.prod(kernel.grid) / (device.multiprocessors * resident)
    return None


LOW = 0.25
_LIMITS = {
    "registers": "Its registers",
    "shared memory": "Its shared memory",
    "blocks": "The number of its blocks",
}


@rule(
    "low-occupancy",
    source="https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#occupancy",
)
def low_occupancy(evidence: Evidence) -> Iterator[Finding]:
    """Find kernels whose registers or shared memory leave few threads resident."""
    by_name: dict[str, list[KernelCalls]] = {}
    for calls in evidence.kernels:
        kernel = calls.kernel
        if (
            calls.computes
            and kernel.occupancy is not None
            and kernel.occupancy < LOW
            and kernel.limiter in _LIMITS
            # Products hide latency within each thread, and need few threads.
            and category(calls.name) not in PRODUCTS
        ):
            by_name.setdefault(calls.name, []).append(calls)
    for name, group in by_name.items():
        if not (time := noticeable(evidence, (calls.time for calls in group))):
            continue
        longest = max(group, key=lambda calls: calls.time)
        limiter = _LIMITS[str(longest.kernel.limiter)]
        yield low_occupancy.finding(
            title=f"{short_name(name)} keeps {units.percent(longest.kernel.occupancy)} of the "
            "device's warps resident",
            evidence=f"{limiter} allow no more: {longest.kernel.registers} registers per thread, "
            f"{units.size(longest.kernel.shared_memory)} of shared memory per block. It takes "
            f"{units.time(time)}, {evidence.part(time)}.",
            remedy="If it waits for memory: fewer registers (__launch_bounds__, smaller tiles) or "
            "less shared memory (num_stages in Triton).",
            time=time,
            node=longest.node,
            view="tables",
        )
