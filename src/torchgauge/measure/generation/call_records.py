"""Make the record of one call from what was seen of it."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.measure.generation.generate_calls import GenerateCall
from torchgauge.measure.generation.stages import (
    NANO,
    CountedForward,
    Prompt,
    columns,
    counted,
    prompt_end,
    stages,
)
from torchgauge.records.generation.call import GenerationCall, Stage


def generate_record(call: GenerateCall, device: str) -> GenerationCall:
    """Return the record of a `generate()`; reads what a GPU has to finish first."""
    forwards = counted(call.forwards)
    prompt = Prompt(_prompt_tokens(call), call.mask, in_decoder=not call.encoder_decoder)
    end = prompt_end(forwards, prompt)
    stage = stages(forwards, end)
    return GenerationCall(
        by="generate",
        batch=_batch(call, forwards),
        sequences=_sequences(forwards) or _batch(call, forwards),
        prompt=_prompt(call, forwards, stage, end),
        new_tokens=_new_tokens(call, forwards, stage, end),
        duration=(call.end - call.begin) * NANO,
        forwards=columns(forwards, stage, call.begin),
        device=device,
        error="" if call.error is None else type(call.error).__name__,
        interrupted=isinstance(call.error, KeyboardInterrupt),
    )


def _batch(call: GenerateCall, forwards: Sequence[CountedForward]) -> int:
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
        encoded = (f.tokens for f, s in zip(forwards, stage, strict=True) if s == "encoder")
        return max(encoded, default=_prompt_tokens(call) or 0)
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
