"""Decode steps that compute all positions again, for want of a cache."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.generation.decode_time import decode_count, forward_time, shape
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.generation.cell import GenerationCell


def _find(evidence: Evidence) -> Iterator[Finding]:
    cell, generation = evidence.generation_cell, evidence.generation
    if cell is None or generation is None or cell.step is None or cell.assisted:
        return
    tokens = [
        call.forwards.tokens[index]
        for call in cell.timed_calls
        for index in call.forwards.indices("decode")
    ]
    if not tokens or min(tokens) <= cell.prompt:
        return
    computed = statistics.fmean(tokens)
    time = forward_time(cell)
    cached = _with_cache(cell, generation.done)
    by_cell = "" if cached is None else f"; with a cache a step took {units.time(cached)}"
    # A step of one position takes at least its share of one that computes all.
    step_with_cache = cell.step.value / computed if cached is None else min(cached, cell.step.value)
    yield Finding(
        id="prompt-recomputed",
        severity=severity(share(time, evidence.time)),
        title="Each decode step computes the whole sequence again",
        evidence=f"{computed:,.0f} positions on average instead of one, {units.time(time)} in "
        f"{decode_count(cell)} steps {shape(cell)}{by_cell}.",
        remedy="use_cache=True; in a loop of one's own pass past_key_values on, and only the new "
        "token.",
        time=time,
        worth=max(0.0, time - step_with_cache * decode_count(cell)),
    )


def _with_cache(cell: GenerationCell, all_cells: tuple[GenerationCell, ...]) -> float | None:
    """Return the seconds of a step of the same shape with a cache; None where not measured."""
    sizes = (cell.batch, cell.prompt, cell.beams)
    steps = (
        other.step.value
        for other in all_cells
        if (other.batch, other.prompt, other.beams) == sizes
        and other.cache_kind != "none"
        and other.step is not None
        and not other.assisted
    )
    return min(steps, default=None)


RULE = Rule(
    "prompt-recomputed",
    _find,
    source="https://huggingface.co/docs/transformers/cache_explanation",
)
