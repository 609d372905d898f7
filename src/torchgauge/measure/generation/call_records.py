"""Make the record of one call from what was seen of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge.measure.generation.cache_layout import CacheLayout
from torchgauge.measure.generation.cache_sizes import size_of
from torchgauge.measure.generation.generate_calls import GenerateCall
from torchgauge.measure.generation.loops import Loop, loop_stages
from torchgauge.measure.generation.stages import (
    NANO,
    CountedForward,
    Prompt,
    columns,
    counted,
    prompt_chunks,
    prompt_end,
    stages,
)
from torchgauge.records.generation.cache_size import CacheSize
from torchgauge.records.generation.call import GenerationCall, Stage


def generate_record(call: GenerateCall, device: str, config: Any) -> GenerationCall:
    """Return the record of a `generate()`; waits for what a GPU has not finished.

    `config` is the model's, for the formula of its cache.
    """
    forwards = counted(call.forwards)
    prompt = Prompt(
        _prompt_tokens(call), call.mask, in_decoder=not call.encoder_decoder, chunk=call.chunk
    )
    end = prompt_end(forwards, prompt)
    stage = stages(forwards, end, prompt_chunks(forwards, prompt))
    return GenerationCall(
        by="generate",
        batch=_batch(call),
        sequences=_sequences(forwards) or _batch(call),
        prompt=_prompt(call, forwards, stage, end),
        new_tokens=_new_tokens(call, forwards, stage, end),
        duration=(call.end - call.begin) * NANO,
        forwards=columns(forwards, stage, call.begin),
        cache=_cache_size(call.cache, config, forwards, call.error),
        device=device,
        error="" if call.error is None else type(call.error).__name__,
        interrupted=isinstance(call.error, KeyboardInterrupt),
    )


def loop_record(
    loop: Loop, device: str, config: Any, layout: CacheLayout | None = None
) -> GenerationCall:
    """Return the record of a call of a program's own loop, `layout` that of its cache at the end.

    It ends with its last forward: when the token of that was chosen is not known.
    """
    stage = loop_stages(loop)
    begin = loop.forwards[0].timed.begin
    sequences = _sequences(loop.forwards)
    prefills = [f for f, s in zip(loop.forwards, stage, strict=True) if s == "prefill"]
    end = prefills[-1].total
    return GenerationCall(
        by="loop",
        batch=sequences,
        sequences=sequences,
        prompt=_encoded(loop.forwards, stage) or end,
        new_tokens=chosen_tokens(loop.forwards, stage, end),
        duration=(loop.forwards[-1].timed.end - begin) * NANO,
        forwards=columns(loop.forwards, stage, begin),
        cache=_cache_size(layout, config, loop.forwards),
        device=device,
    )


def _cache_size(
    layout: CacheLayout | None,
    config: Any,
    forwards: Sequence[CountedForward],
    error: BaseException | None = None,
) -> CacheSize | None:
    last = next((f for f in reversed(forwards) if f.timed.role == "model"), None)
    if layout is None or last is None:
        return None
    if layout.length is not None or error is not None:  # a forward that raised has added some
        return size_of(layout, config)
    return size_of(layout, config, last.total)


def _encoded(forwards: Sequence[CountedForward], stage: Sequence[Stage]) -> int:
    return max(
        (f.tokens for f, s in zip(forwards, stage, strict=True) if s == "encoder"), default=0
    )


def _batch(call: GenerateCall) -> int:
    shape = call.ids if call.ids is not None else call.inputs
    return shape[0] if shape else 1  # without any, transformers begins one sequence


def _sequences(forwards: Sequence[CountedForward]) -> int:
    return max((f.sequences for f in forwards if f.timed.role == "model"), default=0)


def _prompt_tokens(call: GenerateCall) -> int | None:
    if call.ids is not None:
        return call.ids[1] if len(call.ids) == 2 else None
    return call.inputs[1] if call.inputs is not None and len(call.inputs) == 3 else None


def _prompt(
    call: GenerateCall, forwards: Sequence[CountedForward], stage: Sequence[Stage], end: int
) -> int:
    """Return the prompt's positions: an encoder's, or those in the cache before the first step."""
    if call.encoder_decoder:
        return _encoded(forwards, stage) or _prompt_tokens(call) or 0
    steps = [forward for forward, s in zip(forwards, stage, strict=True) if s == "decode"]
    if any(step.tokens > 1 and step.timed.cache is not None for step in steps):
        return end  # drafts are checked, in the first forward too
    computed = (f.total for f, s in zip(forwards, stage, strict=True) if s == "prefill")
    return max(end, max(computed, default=0))  # images take more positions than ids


def _new_tokens(
    call: GenerateCall, forwards: Sequence[CountedForward], stage: Sequence[Stage], end: int
) -> int:
    if call.standard and call.output is not None and len(call.output) == 2:
        return max(0, call.output[1] - _start(call, stage, end))
    chosen = chosen_tokens(forwards, stage, end)
    return chosen if call.error is None or chosen == 0 else chosen - 1


def _start(call: GenerateCall, stage: Sequence[Stage], end: int) -> int:
    """Return how many tokens of the output were there before the new ones."""
    if call.encoder_decoder:  # a start token is put before what was given, where it lacks one
        return call.start if "draft" in stage else end
    if call.ids is not None:
        return call.ids[-1]
    return 0 if call.inputs is not None else 1


def chosen_tokens(forwards: Sequence[CountedForward], stage: Sequence[Stage], end: int) -> int:
    """Return the tokens of a sequence that the forwards make, the last of them with it."""
    steps = [forward for forward, s in zip(forwards, stage, strict=True) if s == "decode"]
    if any(step.tokens > 1 and step.timed.cache is not None for step in steps):
        return steps[-1].cached - end + 2  # what was accepted before it, the first and its own
    prefills = [forward for forward, s in zip(forwards, stage, strict=True) if s == "prefill"]
    begun = sum(prefill.cached == 0 for prefill in prefills)
    return len(steps) + max(begun, min(1, len(prefills)))
