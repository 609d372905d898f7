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
    if cell is None or not cell.calls or cell.calls[0].error:
        return
    later = [
        call.duration
        for call in cell.calls[1:]
        if not call.error and call.new_tokens >= cell.calls[0].new_tokens
    ]
    first = cell.calls[0].duration
    usual = statistics.median(later) if len(later) >= FEWEST_LATER else 0.0
    if not usual or first < FACTOR * usual:
        return
    factor = units.significant(first / usual, 2)
    yield Finding(
        id="slow-first-call",
        severity="info",
        title=f"The first call takes {factor} times as long as later ones",
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
