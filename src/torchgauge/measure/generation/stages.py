"""Assign the forwards of a call to stages by the tokens that they computed and found cached."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from torchgauge.measure.generation.forwards import TimedForward
from torchgauge.records.generation.call import Forwards, Stage

NANO = 1e-9


@dataclasses.dataclass(slots=True)
class CountedForward:
    """A timed forward with its counts.

    Attributes:
        timed: The forward.
        sequences: Rows of its tokens.
        tokens: Positions of a sequence that it computed.
        cached: Positions of a sequence that were in its cache before.
    """

    timed: TimedForward
    sequences: int
    tokens: int
    cached: int

    @property
    def total(self) -> int:
        """Positions of a sequence after it."""
        return self.cached + self.tokens

    @property
    def is_first_of_cache(self) -> bool:
        """Whether it fills an empty cache."""
        return self.timed.cache is not None and self.cached == 0


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """A call's prompt, before its forwards are looked at.

    Attributes:
        tokens: Positions given; None where only the forwards tell.
        mask: Positions of the attention mask, cached ones included; None without one.
        in_decoder: Whether the model's own forwards compute it, not an encoder's.
        chunk: Tokens of a chunk that it is computed in; None where it is whole.
    """

    tokens: int | None
    mask: int | None = None
    in_decoder: bool = True
    chunk: int | None = None


def counted(forwards: Iterable[tuple[Any, ...]]) -> list[CountedForward]:
    """Return the forwards of one call with their counts.

    Where a cache does not say what it holds, as one of states does not, that is what the forwards
    before it on the same model have computed.
    """
    totals: dict[str, int] = {}
    counts: list[CountedForward] = []
    for fields in forwards:
        timed = TimedForward(*fields)
        sequences, tokens = shape_of(timed)
        if timed.cached is not None:
            cached = int(timed.cached)
        elif timed.cache is not None:
            cached = totals.get(timed.role, 0)
        else:
            cached = 0
        counts.append(CountedForward(timed, sequences, tokens, cached))
        totals[timed.role] = cached + tokens
    return counts


def shape_of(timed: TimedForward) -> tuple[int, int]:
    """Return the sequences and the tokens of each that a forward computes."""
    if len(timed.shape) == 1:
        return 1, timed.shape[0]
    return (timed.shape[0], timed.shape[1]) if timed.shape else (1, 0)


def prompt_end(forwards: Sequence[CountedForward], prompt: Prompt) -> int:
    """Return the positions that the prompt ends at in the model's own cache.

    A program that goes on with a cache gives the whole sequence or its new tokens alone, and the
    prompt may come in chunks: the mask tells which, and without it how many tokens were computed.
    """
    first = next((forward for forward in forwards if forward.timed.role == "model"), None)
    if first is None:
        return prompt.tokens or 0
    if prompt.tokens is None or not prompt.in_decoder:
        return first.total
    if prompt.mask is not None and prompt.mask > prompt.tokens:
        return prompt.mask
    if first.tokens < prompt.tokens and first.cached < prompt.tokens:
        return prompt.tokens
    return first.cached + prompt.tokens


def prompt_chunks(forwards: Sequence[CountedForward], prompt: Prompt) -> int:
    """Return in how many forwards, at least, a prompt is computed that begins in an empty cache.

    Positions alone do not tell where an adapter puts ones of its own before the first chunk.
    """
    first = next((forward for forward in forwards if forward.timed.role == "model"), None)
    if first is None or not first.is_first_of_cache:
        return 1
    if prompt.chunk is None or prompt.tokens is None or not prompt.in_decoder:
        return 1
    return -(-prompt.tokens // prompt.chunk)


def stages(forwards: Sequence[CountedForward], end: int, chunks: int = 1) -> tuple[Stage, ...]:
    """Return the stage of each forward of a `generate()` whose prompt ends at a position.

    `chunks` are the forwards, at least, that the prompt is computed in.
    """
    assigned: list[Stage] = []
    for forward in forwards:
        if forward.timed.role == "encoder":
            assigned.append("encoder")
        elif forward.timed.role == "assistant":
            assigned.append("draft")
        elif (
            assigned.count("prefill") < chunks
            or forward.is_first_of_cache
            or (forward.timed.cache is not None and forward.total <= end)
        ):
            assigned.append("prefill")
        else:
            assigned.append("decode")
    return tuple(assigned)


def columns(forwards: Sequence[CountedForward], stage: Sequence[Stage], begin: int) -> Forwards:
    """Return the record of forwards of a call that begins at a reading of the clock."""
    device = [_device_seconds(forward.timed.events) for forward in forwards]
    device_seconds = tuple(seconds for seconds in device if seconds is not None)
    return Forwards(
        begin=tuple((forward.timed.begin - begin) * NANO for forward in forwards),
        duration=tuple((forward.timed.end - forward.timed.begin) * NANO for forward in forwards),
        stage=tuple(stage),
        sequences=tuple(forward.sequences for forward in forwards),
        tokens=tuple(forward.tokens for forward in forwards),
        cached=tuple(forward.cached for forward in forwards),
        device=device_seconds if None not in device else (),
    )


def _device_seconds(events: tuple[Any, Any] | None) -> float | None:
    """Return the time between two events; None without, or where a graph was captured."""
    if events is None or None in events:
        return None
    before, after = events
    after.synchronize()
    return float(before.elapsed_time(after)) * 1e-3
