"""A static cache that reserves far more positions than calls fill."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.generation.decode_time import shape
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

# A cache is made for the longest call; up to half of it may be room for that.
UNUSED = 0.5


def _find(evidence: Evidence) -> Iterator[Finding]:
    cells = () if evidence.generation is None else evidence.generation.done
    wasteful = [
        (cell.cache.held - cell.cache.used, cell.cache, cell)
        for cell in cells
        if cell.cache_kind == "static"
        and cell.cache is not None
        and cell.cache.used is not None
        and cell.cache.held - cell.cache.used > UNUSED * cell.cache.held
    ]
    if not wasteful:
        return
    unused, cache, cell = max(wasteful, key=lambda entry: entry[0])
    peak = 0 if cell.memory is None else cell.memory.peak
    of_peak = f", {units.percent(unused / peak)} of the peak memory" if peak else ""
    yield Finding(
        id="unused-cache",
        severity="warning" if peak and unused > UNUSED * peak else "info",
        title=f"{units.percent(unused / cache.held)} of the static cache holds no token",
        evidence=f"{units.size(cache.held)} are held and {units.size(cache.used)} used at the end "
        f"of a call {shape(cell)}{of_peak}. Attention runs over what is held where a mask alone "
        "leaves it out.",
        remedy="A smaller max_cache_len, or max_length of the calls; a dynamic cache holds what it "
        "uses.",
    )


RULE = Rule(
    "unused-cache",
    _find,
    source="https://huggingface.co/docs/transformers/kv_cache",
)
