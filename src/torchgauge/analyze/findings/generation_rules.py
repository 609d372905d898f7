"""What a generation does needlessly."""

from __future__ import annotations

import statistics
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


@rule("prompt-recomputed", source="https://huggingface.co/docs/transformers/cache_explanation")
def prompt_recomputed(evidence: Evidence) -> Iterator[Finding]:
    """Find decode steps that compute all positions again, for want of a cache."""
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
    yield prompt_recomputed.finding(
        severity(share(time, evidence.time)),
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


@rule("slow-assistant", source="https://huggingface.co/docs/transformers/assisted_decoding")
def slow_assistant(evidence: Evidence) -> Iterator[Finding]:
    """Find an assistant whose drafts are accepted too rarely to save time."""
    generation = evidence.generation
    if generation is None:
        return
    slower = []
    for cell in generation.done:
        plain = _plain_token(cell, generation) if cell.assisted else None
        if plain is not None and cell.tpot is not None and cell.tpot.value > plain:
            slower.append((cell.tpot.value / plain, plain, cell))
    if not slower:
        return
    factor, plain, cell = max(slower, key=lambda entry: entry[0])
    token = plain * factor
    time = (token - plain) * max(0, cell.new_tokens - 1)
    yield slow_assistant.costs(
        (time, evidence.time),
        title=f"With the assistant a token takes {units.significant(factor, 2)} times as long",
        evidence=f"{units.time(token)} a token {_rounds(cell)}; without it {units.time(plain)}.",
        remedy="A smaller assistant, one that resembles the model more, fewer drafted tokens "
        "(num_assistant_tokens), or none.",
        view="",
    )


def _plain_token(cell: GenerationCell, generation: Generation) -> float | None:
    """Return the seconds of a token without the assistant: of the same shape, or by the fit."""
    sizes = (cell.batch, cell.prompt, cell.beams, cell.cache_kind)
    for other in generation.done:
        other_sizes = (other.batch, other.prompt, other.beams, other.cache_kind)
        if other_sizes == sizes and not other.assisted and other.tpot is not None:
            return other.tpot.value
    fit = generation.fit("decode", cell.cache_kind)
    if fit is None or fit.quantile is None:
        return None
    # Findings of other records are rendered without numpy.
    from torchgauge.analyze.generation.predictions import stage_time

    contexts = (cell.prompt + 1, cell.prompt + max(1, cell.new_tokens - 1))
    predicted = stage_time(fit, cell.batch * cell.beams, contexts)
    return None if predicted is None or predicted.extrapolated else predicted.seconds


def _rounds(cell: GenerationCell) -> str:
    """Return what a round of drafts and the model's check of them yields, in words."""
    rounds = emitted = drafts = 0
    draft_times, step_times = [], []
    for call in cell.timed_calls:
        forwards = call.forwards
        rounds += len(call.emitted)
        emitted += sum(call.emitted)
        drafts += len(forwards.indices("draft"))
        draft_times += [forwards.seconds(index) for index in forwards.indices("draft")]
        step_times += [forwards.seconds(index) for index in forwards.indices("decode")]
    if not rounds:
        return ""
    return (
        f"({units.significant(emitted / rounds, 2)} tokens a round, of "
        f"{units.significant(drafts / rounds, 2)} drafts of "
        f"{units.time(statistics.median(draft_times), 3)} and a forward of "
        f"{units.time(statistics.median(step_times), 3)})"
    )


@rule("beam-cost", source="https://huggingface.co/docs/transformers/generation_strategies")
def beam_cost(evidence: Evidence) -> Iterator[Finding]:
    """Find beams, each of which is a sequence more in every step."""
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
    yield beam_cost.costs(
        (time, evidence.time),
        title=f"{cell.beams} beams compute {cell.beams} sequences per prompt",
        evidence=f"A call takes {units.time(cell.end_to_end.value)} {shape(cell)}, {compared}; "
        "the cache and the choice of tokens grow alike.",
        remedy="Fewer beams, or sampling, where the quality allows it.",
        view="",
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


# A cache is made for the longest call; up to half of it may be room for that.
UNUSED = 0.5


@rule("unused-cache", source="https://huggingface.co/docs/transformers/kv_cache")
def unused_cache(evidence: Evidence) -> Iterator[Finding]:
    """Find a static cache that reserves far more positions than calls fill."""
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
    yield unused_cache.finding(
        "warning" if peak and unused > UNUSED * peak else "info",
        title=f"{units.percent(unused / cache.held)} of the static cache holds no token",
        evidence=f"{units.size(cache.held)} are held and {units.size(cache.used)} used at the end "
        f"of a call {shape(cell)}{of_peak}. Attention runs over what is held where a mask alone "
        "leaves it out.",
        remedy="A smaller max_cache_len, or max_length of the calls; a dynamic cache holds what it "
        "uses.",
    )


@rule("beyond-window", source="https://huggingface.co/docs/transformers/kv_cache")
def beyond_window(evidence: Evidence) -> Iterator[Finding]:
    """Find a context that is longer than the positions that any layer attends to."""
    cells = () if evidence.generation is None else evidence.generation.done
    longer = [
        (cell.prompt + cell.new_tokens, cell.cache.window, cell)
        for cell in cells
        if cell.cache is not None
        and cell.cache.window is not None
        and cell.prompt + cell.new_tokens > cell.cache.window
    ]
    if not longer:
        return
    context, window, cell = max(longer, key=lambda entry: entry[0])
    yield beyond_window.finding(
        title=f"No layer attends further back than {window:,} positions",
        evidence=f"A call {cell.label} reaches {context:,}: the first {context - window:,} act "
        "through later positions alone. Neither its steps nor its cache grow beyond the window.",
        remedy="If the model is to see the whole prompt: a model with longer attention.",
    )


FACTOR = 2.0
FEWEST_LATER = 2


@rule(
    "slow-first-call",
    source="https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_tutorial.html",
)
def slow_first_call(evidence: Evidence) -> Iterator[Finding]:
    """Find a first call that takes far longer than those after it."""
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
    yield slow_first_call.finding(
        title=f"The first call takes {factor} times as long as later ones",
        evidence=f"{units.time(first)}, later ones {units.time(usual)} with {cell.label}: "
        "compilation, loading of libraries and the first allocations"
        f"{'; it is in no other figure' if cell.warmup else ''}.",
        remedy="Call the model once before it serves, with each shape that compiled code is made "
        "for; keep compiled code between runs (TORCHINDUCTOR_CACHE_DIR).",
        time=first - usual,
    )


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
