"""What a call returns before it has done its work: run to its end, or refused by name.

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

# No call yields so many values; what goes on would never end.
MOST = 1_000_000
_DEEP = 4  # containers in containers


def finished(outputs: Any) -> Any:
    """Return the outputs once all that they stand for is computed: themselves in nearly all cases.

    Raises MeasurementError `output-deferred`, and what an iterator raises.
    """
    return _finished(outputs, _DEEP)


class Finishing:
    """`finished` for what is timed: a type of outputs that was whole once is not looked into."""

    def __init__(self) -> None:
        self._whole: set[type] = set()

    def __call__(self, outputs: Any) -> Any:
        """Return the outputs with all of their work done."""
        if type(outputs) in self._whole:
            return outputs
        whole = finished(outputs)
        if whole is outputs:
            self._whole.add(type(outputs))
        return whole


def _finished(outputs: Any, deep: int) -> Any:
    kind = type(outputs)
    if kind in (tuple, list):
        values = [_finished(one, deep - 1) for one in outputs] if deep else outputs
        return outputs if all(map(is_, values, outputs)) else kind(values)
    if kind is dict:
        found = {key: _finished(one, deep - 1) for key, one in outputs.items()} if deep else outputs
        return outputs if all(found[key] is one for key, one in outputs.items()) else found
    if isinstance(outputs, Iterator) and not isinstance(outputs, io.IOBase):
        return _values(outputs)
    if _waits(outputs):
        raise _refused(outputs)
    return outputs


def _values(iterator: Iterator[Any]) -> list[Any]:
    values: list[Any] = []
    for value in iterator:
        values.append(value)
        if len(values) > MOST:
            raise MeasurementError(
                f"The model's forward returns a {type(iterator).__name__} without an end.",
                id="output-deferred",
                cause=f"It has yielded {MOST:,} values and goes on.",
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
        cause="Its work is done when somebody waits for it; the call alone would be measured.",
        remedy="Give a function that returns when all is done, such as "
        "`lambda x: asyncio.run(model(x))` or `lambda x: model(x).wait()`.",
    )
