"""A batch whose decode steps read the weights for few sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchgauge import units
from torchgauge.analyze.findings.generation.decode_time import decode_count
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation

if TYPE_CHECKING:
    from torchgauge.analyze.generation.predictions import StageTime

LARGER = 4
# More tokens per second than so many times as many are worth a larger batch.
GAIN = 1.5
DOMINANT_SHARE = 0.5


def _find(evidence: Evidence) -> Iterator[Finding]:
    cell, generation = evidence.generation_cell, evidence.generation
    work = None if cell is None else cell.work_of("decode")
    if cell is None or generation is None or work is None or cell.tpot is None:
        return
    weights = (work.weight_bytes or 0) / work.bytes if work.bytes else 0.0
    batch = _larger(cell, generation)
    if weights < DOMINANT_SHARE or batch <= cell.batch:
        return
    measured, enlarged = (_token(generation, cell, size) for size in (cell.batch, batch))
    if measured is None or enlarged is None:
        return
    gain = batch / cell.batch * measured.seconds / enlarged.seconds
    if gain < GAIN:
        return
    yield Finding(
        id="small-batch",
        severity="info",
        title=f"A batch of {batch} would make {units.significant(gain, 2)} times the tokens per "
        "second",
        evidence=f"A step takes {units.time(measured.seconds, 3)} with {cell.batch} and "
        f"{units.time(enlarged.seconds, 3)} with {batch} by the fit"
        f"{', beyond the batches that were measured' if enlarged.extrapolated else ''}; "
        f"weights are {units.percent(weights)} of the bytes that it reads, for any batch the "
        "same.",
        remedy="More prompts in one call, or continuous batching; each waits longer for a token.",
        time=evidence.within(measured.seconds * decode_count(cell)),
    )


def _larger(cell: GenerationCell, generation: Generation) -> int:
    """Return four times the batch, or the largest one that fits."""
    largest = generation.largest_batch
    return LARGER * cell.batch if largest is None else min(LARGER * cell.batch, largest.largest)


def _token(generation: Generation, cell: GenerationCell, batch: int) -> StageTime | None:
    """Return the time of a step at another batch; None where no fit knows how it grows."""
    fit = generation.fit("decode", cell.cache_kind)
    if fit is None or fit.quantile is None:
        return None
    # Findings of other records are rendered without numpy.
    from torchgauge.analyze.generation.predictions import stage_time

    contexts = (cell.prompt + 1, cell.prompt + max(1, decode_count(cell)))
    return stage_time(fit, batch * cell.beams, contexts)


RULE = Rule(
    "small-batch",
    _find,
    source="https://huggingface.co/docs/transformers/continuous_batching",
)
