"""Host work in a time interval: the operators as the user called them."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, Spans
from torchgauge.analyze.trace.packed_columns import packed
from torchgauge.records.trace.events import Coded, Events, Integers

OUTSIDE = "outside of operators"


class HostWork:
    """The outermost operators of the threads that launch work, in order of their begin."""

    def __init__(self, events: Events, spans: Spans, threads: Integers) -> None:
        names: Coded[str] = events.name.take(spans.row)
        operator = names.where(operators(events))
        parent = spans.parent
        outer = operator & ~(np.append(operator, False)[parent] & (parent != NONE))
        places = np.flatnonzero(outer & np.isin(spans.thread, threads))
        places = places[np.argsort(spans.nesting.start[places], kind="stable")]
        end = spans.nesting.end[places]
        self._names, self._codes = names.values, packed(names.codes[places])
        self._begin = packed(spans.nesting.start[places])
        self._end, self._reach = packed(end), packed(np.maximum.accumulate(end))

    def between(self, begin: int, end: int) -> Iterator[tuple[str, int]]:
        """Yield names and ns that add up to the interval; the first of several threads counts."""
        place = bisect.bisect_right(self._reach, begin)
        time = begin
        while place < len(self._codes) and self._begin[place] < end and time < end:
            low, high = max(self._begin[place], time), min(self._end[place], end)
            if high > low:
                if low > time:
                    yield OUTSIDE, low - time
                yield self._names[self._codes[place]], high - low
                time = high
            place += 1
        if end > time:
            yield OUTSIDE, end - time


def operators(events: Events) -> Callable[[str], bool]:
    """Return the test for operator names, which ranges of the engine or users do not pass.

    JAX and Proton have nothing between the steps and what the host does in them.
    """
    if events.metadata.recorder in ("JAX", "Proton"):
        return lambda name: not name.startswith("ProfilerStep#")
    return lambda name: "::" in name and not name.startswith("autograd::")
