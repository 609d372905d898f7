"""What bounds the steps of a generation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import rule, severity, share
from torchgauge.analyze.work.bottleneck import EXPLAINED, LEAST_EXPLAINED
from torchgauge.records.finding import Finding
from torchgauge.records.generation.cell import GenerationCell, StageWork
from torchgauge.records.generation.generation import Generation

if TYPE_CHECKING:
    from torchgauge.analyze.generation.predictions import StageTime


def decode_count(cell: GenerationCell) -> int:
    """Return the steps after the first token of the call that has most."""
    return max((len(call.forwards.indices("decode")) for call in cell.timed_calls), default=0)


def forward_time(cell: GenerationCell) -> float:
    """Return the seconds that the decode forwards of a call take; 0 without any."""
    return cell.step.value * decode_count(cell) if cell.step is not None else 0.0


def shape(cell: GenerationCell) -> str:
    """Return the cell in words, for the middle of a sentence."""
    return f"with {cell.label}"


_REMEDIES = {
    "memory": "Fewer bytes: weights in bfloat16, int8 or int4, a quantized cache, fewer heads of "
    "keys; or more prompts in a batch, which share one read of the weights.",
    "compute": "bfloat16 or float16 where the device multiplies them faster; fewer prompts at once "
    "take less time each step.",
}
_STARTING = (
    " Nearer to the bound: torch.compile with a static cache, which leaves out the time of "
    "starting operators."
)


@rule("decode-bound", source="https://huggingface.co/docs/transformers/llm_optims")
def decode_bound(evidence: Evidence) -> Iterator[Finding]:
    """Find what bounds a decode step under the device's roofs, and how near it comes to that."""
    cell = evidence.generation_cell
    work = None if cell is None else cell.work_of("decode")
    if cell is None or cell.step is None or work is None or not work.reached or work.bound is None:
        return
    time = forward_time(cell)
    worth = max(0.0, 1 - work.reached) * time
    reached = units.percent(work.reached)
    explained = work.reached >= LEAST_EXPLAINED
    limit = "memory" if work.bound == "memory" else "arithmetic"
    yield decode_bound.finding(
        "info" if work.reached >= EXPLAINED else severity(share(worth, evidence.time)),
        title=f"Decode is bound by {limit} at {reached} of the bound"
        if explained
        else f"A decode step is far from its bound: {reached} of it",
        evidence=f"A step takes {units.time(cell.step.value)} {shape(cell)}, "
        f"at least {units.time(work.lower_bound)} under the device's roofs{_amounts(work)}; "
        f"{decode_count(cell)} steps a call.",
        remedy=(_REMEDIES[work.bound] if explained else "")
        + (_STARTING if work.reached < EXPLAINED else ""),
        time=time,
        worth=worth,
    )


def _amounts(work: StageWork) -> str:
    parts = (
        (work.weight_bytes, "weights"),
        (work.cache_bytes, "cache"),
        (work.activation_bytes, "activations"),
    )
    sizes = [f"{units.size(size)} of {name}" for size, name in parts if size]
    return f", for {', '.join(sizes)} and {units.count(work.flops)} FLOPs" if sizes else ""


@rule("attention-growth", source="https://huggingface.co/docs/transformers/attention_interface")
def attention_growth(evidence: Evidence) -> Iterator[Finding]:
    """Find decode steps that take longer with each position that they attend to."""
    cell, generation = evidence.generation_cell, evidence.generation
    if cell is None or generation is None or cell.tpot is None or cell.cache_kind == "none":
        return
    fit = generation.fit("decode", cell.cache_kind)
    growth = None if fit is None else fit.per_context
    if fit is None or growth is None or growth.interval is None or growth.interval.low <= 0:
        return
    sequences, steps = cell.batch * cell.beams, decode_count(cell)
    bounded = fit.window or float("inf")
    middle, last = (min(cell.prompt + count, bounded) for count in (steps / 2, steps))
    time = evidence.within(growth.value * sequences * middle * steps)
    low, high = growth.interval.low * sequences, growth.interval.high * sequences
    yield attention_growth.costs(
        (time, evidence.time),
        title=f"Attention grows {units.time(growth.value * sequences, 2)} a position",
        evidence=f"With {sequences} {'sequences' if sequences > 1 else 'sequence'} "
        f"({units.times(low, high, 2)} by the fit of {len(fit.cells)} points): "
        f"{units.time(growth.value * sequences * last, 3)} of a step of "
        f"{units.time(cell.tpot.value, 3)} at {last:,.0f} positions.",
        remedy="Fused attention (attn_implementation='sdpa', which runs everywhere), fewer heads "
        "of keys (GQA), a cache in fewer bytes, or a window.",
        view="",
    )


@rule("between-forwards", source="https://huggingface.co/docs/transformers/generation_strategies")
def between_forwards(evidence: Evidence) -> Iterator[Finding]:
    """Find time between decode forwards, in which tokens are chosen and Python runs."""
    cell = evidence.generation_cell
    if cell is None or cell.between is None or cell.step is None or cell.assisted:
        return
    between, forward = cell.between.value, cell.step.value
    time = evidence.within(between * decode_count(cell))
    part = share(between, between + forward)
    yield between_forwards.costs(
        (time, evidence.time),
        title=f"{units.percent(part)} of a decode step is between forwards",
        evidence=f"{units.time(between)} after a forward of {units.time(forward)} {shape(cell)}: "
        "choosing the token, stopping rules, Python.",
        remedy="Fewer logits processors and stopping rules, no streamer, greedy decoding where it "
        "will do; more prompts in a batch share this time.",
        view="",
    )


LARGER = 4
# More tokens per second than so many times as many are worth a larger batch.
GAIN = 1.5
DOMINANT_SHARE = 0.5


@rule("small-batch", source="https://huggingface.co/docs/transformers/continuous_batching")
def small_batch(evidence: Evidence) -> Iterator[Finding]:
    """Find a batch whose decode steps read the weights for few sequences."""
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
    yield small_batch.finding(
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
