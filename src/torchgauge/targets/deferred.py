"""Outputs whose work is not done when a call returns: run to their end, or refused by name.

A forward that is a generator returns at once, and computes while somebody asks for its values: its
call alone would be timed at two microseconds. Generators and other iterators are run to their end,
where they are and where a tuple, a list or a dictionary holds them. A coroutine needs an event
loop, and a future another thread: how these are waited for is the caller's to say.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterable, Awaitable, Iterator
from operator import is_
from typing import Any

from torchgauge.errors import MeasurementError

# No call yields so many values; an iterator that yields more would never end.
MAX_VALUES = 1_000_000
_MAX_DEPTH = 4  # of nested containers


def finished(outputs: Any) -> Any:
    """Return the outputs once all that they stand for is computed: themselves in nearly all cases.

    Raises MeasurementError `output-deferred`, and what an iterator raises.
    """
    return _finished(outputs, _MAX_DEPTH)


class Finishing:
    """`finished` for timed calls: an output type that was complete once is not searched again."""

    def __init__(self) -> None:
        self._complete_types: set[type] = set()

    def __call__(self, outputs: Any) -> Any:
        """Return the outputs with all of their work done."""
        if type(outputs) in self._complete_types:
            return outputs
        finished_outputs = finished(outputs)
        if finished_outputs is outputs:
            self._complete_types.add(type(outputs))
        return finished_outputs


def _finished(outputs: Any, depth: int) -> Any:
    kind = type(outputs)
    if kind in (tuple, list):
        values = [_finished(value, depth - 1) for value in outputs] if depth else outputs
        return outputs if all(map(is_, values, outputs)) else kind(values)
    if kind is dict:
        finished_values = (
            {key: _finished(value, depth - 1) for key, value in outputs.items()}
            if depth
            else outputs
        )
        return (
            outputs
            if all(finished_values[key] is value for key, value in outputs.items())
            else finished_values
        )
    if isinstance(outputs, Iterator) and not isinstance(outputs, io.IOBase):
        return _values(outputs)
    if _waits(outputs):
        raise _refused(outputs)
    return outputs


def _values(iterator: Iterator[Any]) -> list[Any]:
    values: list[Any] = []
    for value in iterator:
        values.append(value)
        if len(values) > MAX_VALUES:
            raise MeasurementError(
                f"The model's forward returns a {type(iterator).__name__} without an end.",
                id="output-deferred",
                cause=f"It has yielded {MAX_VALUES:,} values and goes on.",
                remedy="Give a function that takes as many values as you need.",
            )
    return values


def _waits(outputs: Any) -> bool:
    if isinstance(outputs, (Awaitable, AsyncIterable)):
        return True
    # Futures of threads and of torch.jit.fork: both have it, and little else has.
    return callable(getattr(type(outputs), "add_done_callback", None))


def _refused(outputs: Any) -> MeasurementError:
    kind = type(outputs).__name__
    if kind == "coroutine":
        outputs.close()  # or Python warns that nobody awaited it
    return MeasurementError(
        f"The model's forward returns a {kind}, and not its outputs.",
        id="output-deferred",
        cause="Its work is done only when it is awaited; the call alone would be measured.",
        remedy="Give a function that returns when the work is done, such as "
        "`lambda x: asyncio.run(model(x))` or `lambda x: model(x).wait()`.",
    )
