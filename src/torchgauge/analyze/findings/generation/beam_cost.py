"""Beams, each of which is a sequence more in every step."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.generation.decode_time import shape
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.generation.cell import GenerationCell


def _find(evidence: Evidence) -> Iterator[Finding]:
    cell, generation = evidence.generation_cell, evidence.generation
    if cell is None or generation is None or cell.beams < 2 or cell.tpot is None:
        return
    if cell.end_to_end is None:
        return
    single = _single(cell, generation.done)
    if single is None:
        steps = cell.tpot.value * max(0, cell.new_tokens - 1)
        time = evidence.within(steps * (1 - 1 / cell.beams))
        compared = f"at most {units.time(time)} of it goes to the beams beyond the first"
    else:
        time = max(0.0, cell.end_to_end.value - single)
        compared = f"{units.time(single)} with one sequence"
    yield Finding(
        id="beam-cost",
        severity=severity(share(time, evidence.time)),
        title=f"{cell.beams} beams compute {cell.beams} sequences per prompt",
        evidence=f"A call takes {units.time(cell.end_to_end.value)} {shape(cell)}, {compared}; "
        "the cache and the choice of tokens grow alike.",
        remedy="Fewer beams, or sampling, where the quality allows it.",
        time=time,
        worth=time,
    )


def _single(cell: GenerationCell, all_cells: tuple[GenerationCell, ...]) -> float | None:
    """Return the seconds of a call of the same shape with one beam; None where not measured."""
    single_shape = (cell.batch, cell.prompt, cell.new_tokens, cell.cache_kind, 1, False)
    for other in all_cells:
        other_shape = (
            other.batch, other.prompt, other.new_tokens, other.cache_kind, other.beams,
            other.assisted,
        )  # fmt: skip
        if other_shape == single_shape and other.end_to_end is not None:
            return other.end_to_end.value
    return None


RULE = Rule(
    "beam-cost",
    _find,
    source="https://huggingface.co/docs/transformers/generation_strategies",
)
