"""The timer around a call: two readings of the clock, one append and a countdown.

No lock is taken. CPython switches threads at calls and at jumps backwards only, and each statement
that changes what threads share here has neither: eight threads lose no call.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

Call = Callable[..., Any]

LONGEST_GAP = 1000  # calls between two looks at the buffer


class Meter(NamedTuple):
    """The timer of calls, shared by all that are wrapped with it.

    Attributes:
        wrap: Returns the call with the timer around it.
        total: Returns the exact number of calls so far.
        restart: Forgets them; the next call is a special one.
        frames: The functions that run between a wrapped call and the call.
    """

    wrap: Callable[[Call], Call]
    total: Callable[[], int]
    restart: Callable[[], None]
    frames: tuple[Callable[..., Any], ...]


def gaps(every: int, draw: Callable[[], float] = random.random) -> Callable[[], int]:
    """Return what draws how many calls to pass over: of all, one in `every` comes next.

    Gaps are geometric, those of independent draws: no rhythm of calls is missed or met.
    """
    if every == 1:
        return lambda: 0
    scale = 1 / math.log1p(-1 / every)
    return lambda: int(math.log(1 - draw()) * scale)


def meter(  # noqa: C901 - the functions share their variables: attributes would cost 0.1 µs
    append: Callable[[float], object],
    fail: Callable[[type], object],
    special: Callable[[Call, tuple[Any, ...], dict[str, Any]], Any],
    *,
    draw: Callable[[], int],
    times_all: bool,
    clock: Callable[[], float] = time.perf_counter,
) -> Meter:
    """Return a meter that hands the duration of calls in s to `append`, failures to `fail`.

    Now and then, after `draw()` others, a call goes through `special(call, args, kwargs)`, which
    times it. With `times_all` the others are timed here, too, and come before long.
    """
    left = gap = calls = 0

    def rare(inner: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal left, gap, calls
        fresh = min(draw(), LONGEST_GAP) if times_all else draw()
        calls, gap, left = calls + gap - left, fresh, fresh
        return special(inner, args, kwargs)

    def wrap_all(inner: Call) -> Call:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                return rare(inner, args, kwargs)
            begin = clock()
            try:
                output = inner(*args, **kwargs)
            except BaseException as error:
                fail(type(error))
                raise
            append(clock() - begin)
            return output

        return call

    def wrap_some(inner: Call) -> Call:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                return rare(inner, args, kwargs)
            try:
                return inner(*args, **kwargs)
            except BaseException as error:
                fail(type(error))
                raise

        return call

    def total() -> int:
        return calls + gap - left

    def restart() -> None:
        nonlocal left, gap, calls
        left, gap, calls = 0, 0, 0

    return Meter(wrap_all if times_all else wrap_some, total, restart, (rare, special))
