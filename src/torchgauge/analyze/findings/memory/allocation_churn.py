"""Memory of the host that each call requests from the system again."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity
from torchgauge.analyze.latency.yardstick import FAULTING, PAGE_FAULT
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    latency = None if evidence.profile is None else evidence.profile.latency
    runs = () if latency is None else latency.processes
    runs_with_faults = [run for run in runs if FAULTING in run.yardstick and run.median > 0]
    if not runs_with_faults or not evidence.runs_on_host:
        return
    # Processes differ by how blocks happen to lie: the middle one counts.
    faulting = statistics.median(run.yardstick[FAULTING] / run.median for run in runs_with_faults)
    count = statistics.median(run.yardstick[FAULTING] for run in runs_with_faults) / PAGE_FAULT
    if not NOTICEABLE <= faulting <= 1:
        return
    allocations = None if evidence.tree is None else evidence.tree.root.allocations
    yield Finding(
        id="allocation-churn",
        severity=severity(faulting),
        title="Memory requested from the system again takes about "
        f"{units.percent(faulting)} of a call",
        evidence=f"{count:,.0f} page faults, at a microsecond each"
        + (f"; {units.size(allocations)} are allocated." if allocations else "."),
        remedy="Let malloc keep what is freed: MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_="
        "17179869184, or jemalloc; `advise` measures it (malloc-keep).",
        time=faulting * evidence.time,
        worth=faulting * evidence.time,
        view="memory",
    )


RULE = Rule(
    "allocation-churn",
    _find,
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
    "#switch-memory-allocator",
)
