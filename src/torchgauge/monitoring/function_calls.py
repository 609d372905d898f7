"""Timers around functions: plain ones, coroutines, generators and asynchronous generators."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from torchgauge.monitoring.series import Series


class Timing:
    """Times a block as one event; a block that raises is a failed one.

    `first()` notes when the first part of a result was there. With `timed` False it is counted,
    without its time.
    """

    def __init__(self, series: Series, first: Series, *, timed: bool = True) -> None:
        self._series, self._first = series, first
        self.timed, self._has_first = timed, False
        self._begin = 0.0

    def __enter__(self) -> Self:
        """Read the clock."""
        self._begin = time.perf_counter()
        return self

    def first(self) -> None:
        """Note that the first part of the result is there; later calls change nothing."""
        if not self._has_first:
            self._has_first = True
            if self.timed:
                self._first.add(time.perf_counter() - self._begin)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Note the event."""
        if kind is not None and kind is not GeneratorExit:
            self._series.fail(kind)
        elif self.timed:
            self._series.add(time.perf_counter() - self._begin)
        else:
            self._series.add_untimed()
        self._series.drain_if_full()


def takes_time(function: Any) -> bool:
    """Return whether a call of a function only begins the work: coroutines and generators."""
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


def timed_stream(function: Any, timing: Callable[[], Timing]) -> Any:
    """Return a coroutine or generator function with a timer around what it does, to its end."""
    if inspect.iscoroutinefunction(function):

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with timing():
                return await function(*args, **kwargs)

        return coroutine
    if inspect.isgeneratorfunction(function):

        def generator(*args: Any, **kwargs: Any) -> Any:
            with timing() as event:
                items = function(*args, **kwargs)
                for item in items:
                    event.first()
                    yield item

        return generator

    async def asynchronous_generator(*args: Any, **kwargs: Any) -> Any:
        with timing() as event:
            async for item in function(*args, **kwargs):
                event.first()
                yield item

    return asynchronous_generator
