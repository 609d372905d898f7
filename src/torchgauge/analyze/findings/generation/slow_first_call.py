"""A first call that takes far longer than those after it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

FACTOR = 2.0
FEWEST_LATER = 2


def _find(evidence: Evidence) -> Iterator[Finding]:
    cell = evidence.generation_cell
    calls = () if cell is None else [call for call in cell.calls if not call.error]
    if cell is None or len(calls) <= FEWEST_LATER or calls[0] is not cell.calls[0]:
        return
    first, usual = calls[0].duration, statistics.median(call.duration for call in calls[1:])
    if first < FACTOR * usual or calls[0].new_tokens > cell.new_tokens:
        return
    yield Finding(
        id="slow-first-call",
        severity="info",
        title=f"The first call takes {units.significant(first / usual, 2)} times as long as later ones",
        evidence=f"{units.time(first)}, later ones {units.time(usual)} with {cell.label}: "
        "compilation, loading of libraries and the first allocations"
        f"{'; it is in no other figure' if cell.warmup else ''}.",
        remedy="Call the model once before it serves, with each shape that compiled code is made "
        "for; keep compiled code between runs (TORCHINDUCTOR_CACHE_DIR).",
        time=first - usual,
    )


RULE = Rule(
    "slow-first-call",
    _find,
    source="https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_tutorial.html",
)
