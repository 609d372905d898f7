"""What was read from one rank's file, as it travels from the process that read it."""

from __future__ import annotations

import struct

import msgspec
import numpy as np

from torchgauge.analyze.communication.collectives import Calls, Message
from torchgauge.errors import TorchgaugeError
from torchgauge.records.finding import Failure
from torchgauge.records.trace.trace import RankTrace
from torchgauge.traces.rank_file import RankResult, read_rank
from torchgauge.traces.read_options import ReadOptions

# Before each answer: its bytes, and whether the process reads another file.
HEADER = struct.Struct(">Q?")


class Answer(msgspec.Struct, frozen=True):
    """`RankResult` as it travels between processes."""

    rank: RankTrace | None = None
    calls: tuple[tuple[Message, tuple[int, ...], tuple[int, ...]], ...] = ()
    steps: tuple[tuple[Message, tuple[int, ...]], ...] = ()
    failure: Failure | None = None


def answered(file: str, options: ReadOptions) -> bytes:
    """Read a file in this process, and return its `Answer` as bytes."""
    try:
        result = read_rank(file, options)
    except TorchgaugeError as error:
        return _encode(Answer(failure=Failure.from_error(error)))
    calls = tuple(
        (message, tuple(begin.tolist()), tuple(end.tolist()))
        for message, (begin, end) in result.calls.by_message.items()
    )
    steps = tuple((message, tuple(step.tolist())) for message, step in result.calls.steps.items())
    return _encode(Answer(rank=result.rank, calls=calls, steps=steps))


def decoded(file: str, data: bytes) -> RankResult:
    """Return what an `Answer` says. Raises `msgspec.MsgspecError` for other bytes."""
    answer = _decode(data)
    if answer.failure is not None:
        return RankResult(file, error=answer.failure.error())
    calls = {
        message: (np.array(begin, np.int64), np.array(end, np.int64))
        for message, begin, end in answer.calls
    }
    steps = {message: np.array(step, np.int64) for message, step in answer.steps}
    return RankResult(file, answer.rank, Calls(calls, steps))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Answer).decode
