"""Batches that stay far below their limit while each request waits for them to fill."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

FULL = 0.5  # share of the limit


def _find(evidence: Evidence) -> Iterator[Finding]:
    serving = evidence.serving
    if serving is None or not serving.served_by.max_delay:
        return
    limit, delay = serving.served_by.max_batch, serving.served_by.max_delay
    if limit is None or limit < 2:
        return
    means = []
    for name, level in evidence.levels:
        sizes = [size for size in level.requests.batch if size]
        if sizes and not (level.saturation is not None and level.saturation.saturated):
            # Of batches, not of requests: one of 8 has 8 requests that name it.
            means.append((1 / statistics.fmean(1 / size for size in sizes), name, level))
    if not means:
        return
    mean, name, level = max(means, key=lambda entry: entry[0])
    if mean >= FULL * limit:
        return
    median = None if level.latency is None else level.latency.percentile(0.5)
    of_latency = "" if median is None else f", of a median latency of {units.time(median.value, 3)}"
    yield Finding(
        id="small-batches",
        severity="info",
        title=f"Batches have {units.significant(mean, 2)} of {limit} requests on average",
        evidence=f"At {name}. A request waits up to {units.time(delay, 3)} for others to "
        f"come{of_latency}.",
        remedy="A shorter --max-delay at such rates, or a longer one if they are to be larger; "
        "`torchgauge capacity RECORD --tune` compares them.",
    )


RULE = Rule("small-batches", _find)
