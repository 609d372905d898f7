"""The decode steps of a call: each with its context, its time, and the time until the next."""

from __future__ import annotations

from typing import NamedTuple

from torchgauge.records.generation.call import Forwards, GenerationCall


class DecodeStep(NamedTuple):
    """One decode forward and the time until the next one begins, or until the call ends.

    Attributes:
        sequences: Rows of its batch.
        tokens: Positions of a sequence that it computed.
        context: Positions that the last of these attends to.
        forward: Seconds of the forward.
        between: Seconds after it in which no forward ran.
        period: Seconds until the next decode forward: a draft's forwards are in it.
    """

    sequences: int
    tokens: int
    context: int
    forward: float
    between: float
    period: float


def decode_steps(call: GenerationCall) -> tuple[DecodeStep, ...]:
    """Return the decode steps of a call, in order; not the last of a call that an exception ended.

    Where forwards were timed on their device, what the host waits for them is not between them.
    """
    forwards = call.forwards
    indices = forwards.indices("decode")
    next_indices = [*indices[1:], len(forwards)] if indices else []
    ends = [*forwards.begin, call.duration]
    steps = tuple(
        _step(forwards, index, range(index, later), ends[later])
        for index, later in zip(indices, next_indices, strict=True)
    )
    return steps[:-1] if call.error else steps


def _step(forwards: Forwards, index: int, run: range, end: float) -> DecodeStep:
    """Return the step whose forwards, the draft's after it included, are those of `run`."""
    period = max(0.0, end - forwards.begin[index])
    return DecodeStep(
        sequences=forwards.sequences[index],
        tokens=forwards.tokens[index],
        context=forwards.cached[index] + forwards.tokens[index],
        forward=forwards.seconds(index),
        between=max(0.0, period - sum(map(forwards.seconds, run))),
        period=period,
    )
