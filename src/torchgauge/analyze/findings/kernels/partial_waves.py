"""Products whose blocks fill the device a whole number of times and a little more."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import PRODUCTS, Evidence, KernelCalls, short_name
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.analyze.work.categories import category
from torchgauge.records.finding import Finding

_WARP = 32
# Of more waves the last one is a small part.
MOST_WAVES = 4


def _find(evidence: Evidence) -> Iterator[Finding]:
    counted = [(waves, calls) for calls in evidence.kernels if (waves := _waves(evidence, calls))]
    partial = [(_loss(waves), waves, calls) for waves, calls in counted if 1 < waves <= MOST_WAVES]
    worth = sum(loss * calls.time for loss, _, calls in partial)
    if share(worth, evidence.time) < NOTICEABLE:
        return
    time = evidence.within(sum(calls.time for _, _, calls in partial))
    _, waves, longest = max(partial, key=lambda entry: entry[0] * entry[2].time)
    yield Finding(
        id="partial-waves",
        severity="info",
        title=f"Last waves of products leave the device idle for up to "
        f"{units.percent(min(worth, time) / evidence.time)} of the time",
        evidence=f"{short_name(longest.name)}: {math.prod(longest.kernel.grid or ()):,} blocks are "
        f"{units.significant(waves, 3)} times what the device holds at once; "
        f"{units.time(longest.time)} in {longest.kernel.calls:,} calls.",
        remedy="Choose sizes (batch, sequence, width) whose tiles fill the device a whole number "
        "of times; torch.compile(mode='max-autotune') tries other tiles.",
        time=time,
        worth=min(worth, time),
        path=longest.node.path,
        node=longest.node.index,
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


RULE = Rule(
    "partial-waves",
    _find,
    source="https://docs.nvidia.com/deeplearning/performance/"
    "dl-performance-matrix-multiplication/index.html#wave-quant",
)
