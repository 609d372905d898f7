"""The timer around a call: two readings of the clock, one append and a countdown.

No lock is taken. CPython switches threads at calls and at jumps backwards only, and each statement
that changes what threads share here has neither: eight threads lose no call.
"""

from __future__ import annotations

import inspect
import math
import random
import time
from collections.abc import Callable
from typing import Any, Self

from torchgauge.monitoring.series import Series

Call = Callable[..., Any]

LONGEST_GAP = 1000  # timed calls between two looks at the buffer


def gaps(period: int, draw: Callable[[], float] = random.random) -> Callable[[], int]:
    """Return what draws how many calls to pass over: of all, one in `period` comes next.

    Gaps are geometric, those of independent draws: no rhythm of calls is missed or met.
    """
    if period == 1:
        return lambda: 0
    scale = 1 / math.log1p(-1 / period)
    return lambda: int(math.log(1 - draw()) * scale)


class Meter:
    """A timer of calls, shared by all calls that it wraps, in every thread.

    Attributes:
        countdown: Calls until the next special one, as the only item of a list.
        append: Takes the duration of a call in seconds.
        fail: Takes the class of what a call raised.
        special: Times a call with more effort, after `draw()` others: `special(call, args,
            kwargs)`.
        times_all: Whether the others are timed, too.
        clock: The clock.
    """

    def __init__(
        self,
        append: Callable[[float], object],
        fail: Callable[[type], object],
        special: Callable[[Call, tuple[Any, ...], dict[str, Any]], Any],
        *,
        draw: Callable[[], int],
        times_all: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.append, self.fail, self.special = append, fail, special
        self.times_all, self.clock, self._draw = times_all, clock, draw
        self.countdown = [0]
        self._gap = self._calls = 0

    def restart(self) -> None:
        """Forget the calls so far; the next one is special."""
        self.countdown[0] = self._gap = self._calls = 0

    def total(self) -> int:
        """Return the exact number of calls so far."""
        return self._calls + self._gap - self.countdown[0]

    def rare(self, inner: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a special call, and draw when the next one comes."""
        drawn = min(self._draw(), LONGEST_GAP) if self.times_all else self._draw()
        countdown = self.countdown
        calls = self._calls + self._gap - countdown[0]
        self._calls, self._gap, countdown[0] = calls, drawn, drawn
        return self.special(inner, args, kwargs)

    def wrap(self, inner: Call) -> Call:
        """Return the call with the timer around it."""
        return self._wrap_timed(inner) if self.times_all else self._wrap_counted(inner)

    # What the inner functions need are variables of theirs: attributes would cost 0.1 µs.
    def _wrap_timed(self, inner: Call) -> Call:
        countdown, rare, clock = self.countdown, self.rare, self.clock
        append, fail = self.append, self.fail

        def call(*args: Any, **kwargs: Any) -> Any:
            remaining = countdown[0] = countdown[0] - 1
            if remaining < 0:
                return rare(inner, args, kwargs)
            begin = clock()
            try:
                output = inner(*args, **kwargs)
            except BaseException as error:  # Ctrl-C in a call as well is a failed one
                fail(type(error))
                raise
            append(clock() - begin)
            return output

        return call

    def _wrap_counted(self, inner: Call) -> Call:
        countdown, rare, fail = self.countdown, self.rare, self.fail

        def call(*args: Any, **kwargs: Any) -> Any:
            remaining = countdown[0] = countdown[0] - 1
            if remaining < 0:
                return rare(inner, args, kwargs)
            try:
                return inner(*args, **kwargs)
            except BaseException as error:  # likewise
                fail(type(error))
                raise

        return call


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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
