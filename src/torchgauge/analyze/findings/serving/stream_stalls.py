"""Streams that stop for far longer than between two of their contents."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

FACTOR = 10.0  # of the median gap


def _find(evidence: Evidence) -> Iterator[Finding]:
    stalls = []
    for name, level in evidence.levels:
        median = None if level.itl is None else level.itl.percentile(0.5)
        if level.itl is not None and median is not None and median.value > 0:
            stalls.append((level.itl.high / median.value, median.value, level.itl.high, name))
    if not stalls:
        return
    factor, median_gap, longest, name = max(stalls)
    if factor < FACTOR:
        return
    yield Finding(
        id="stream-stalls",
        severity="warning",
        title=f"A stream stopped for {units.time(longest, 3)} between two of its contents",
        evidence=f"{factor:,.0f} times the median gap of {units.time(median_gap, 3)}, at {name}. "
        "A mean per token hides it.",
        remedy="What held its decode steps up: long prompts of others (chunked prefill, fewer "
        "tokens a step), requests that were put out of the cache and computed again.",
    )


RULE = Rule(
    "stream-stalls",
    _find,
    source="https://docs.vllm.ai/en/stable/configuration/optimization.html",
)
