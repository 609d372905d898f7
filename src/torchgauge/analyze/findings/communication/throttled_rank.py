"""A rank whose kernels take longer than the same kernels of the other ranks."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.trace import RankTrace

# GPUs of one model differ by some percent in their clocks; half of the kernels' time is beyond it.
SLOWER = 1.1


def _find(evidence: Evidence) -> Iterator[Finding]:
    """The same kernels on the same shapes: another clock, another limit of power, other load."""
    trace = evidence.job
    if trace is None or trace.job is None or len(trace.ranks) < 3:  # of two, which is the usual?
        return
    ranks = {rank.rank: rank for rank in trace.ranks}
    for wait in trace.job.waits:
        factor = wait.kernel_time
        if factor is None or factor <= SLOWER:
            continue
        compute = _compute(ranks[wait.rank])
        excess = compute * (1 - 1 / factor)
        yield Finding(
            id="throttled-rank",
            severity=severity(share(excess, evidence.time)),
            title=f"Rank {wait.rank}'s kernels take {factor:.2f} times as long as the same kernels "
            "of the others",
            evidence=f"{units.time(excess)} of its {units.time(compute)} of computation; names and "
            "launch configurations are the same.",
            remedy="Look at its device's clocks, temperature and power limit meanwhile "
            "(`nvidia-smi -q -d PERFORMANCE`), and at other processes on it.",
            time=compute,
            worth=excess,
            view="ranks",
        )


def _compute(rank: RankTrace) -> float:
    return max((device.breakdown.compute for device in rank.times), default=0.0)


RULE = Rule(
    "throttled-rank",
    _find,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
)
