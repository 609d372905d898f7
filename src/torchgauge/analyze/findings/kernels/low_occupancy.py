"""Kernels whose registers or shared memory leave few threads resident."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import PRODUCTS, Evidence, KernelCalls, short_name
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.analyze.work.categories import category
from torchgauge.records.finding import Finding

LOW = 0.25
_LIMITS = {
    "registers": "Its registers",
    "shared memory": "Its shared memory",
    "blocks": "The number of its blocks",
}


def _find(evidence: Evidence) -> Iterator[Finding]:
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
        time = evidence.within(sum(calls.time for calls in group))
        if share(time, evidence.time) < NOTICEABLE:
            continue
        longest = max(group, key=lambda calls: calls.time)
        limiter = _LIMITS[str(longest.kernel.limiter)]
        yield Finding(
            id="low-occupancy",
            severity="info",
            title=f"{short_name(name)} keeps {units.percent(longest.kernel.occupancy)} of the "
            "device's warps resident",
            evidence=f"{limiter} allow no more: {longest.kernel.registers} registers per thread, "
            f"{units.size(longest.kernel.shared_memory)} of shared memory per block. It takes "
            f"{units.time(time)}, {units.percent(time / evidence.time)} of the time.",
            remedy="If it waits for memory: fewer registers (__launch_bounds__, smaller tiles) or "
            "less shared memory (num_stages in Triton).",
            time=time,
            path=longest.node.path,
            node=longest.node.index,
            view="tables",
        )


RULE = Rule(
    "low-occupancy",
    _find,
    source="https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#occupancy",
)
