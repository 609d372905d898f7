"""Host work in a time interval: the operators as the user called them."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, Spans
from torchgauge.analyze.trace.copies import packed
from torchgauge.analyze.work.categories import COMPILED_GRAPH
from torchgauge.records.trace.events import Coded, Events, Integers

OUTSIDE = "outside of operators"


class HostWork:
    """The outermost operators of the threads that launch work, in order of their begin."""

    def __init__(self, events: Events, spans: Spans, threads: Integers) -> None:
        names: Coded[str] = events.name.take(spans.row)
        operator = names.where(operators(events))
        parent = spans.parent
        outer = operator & ~(np.append(operator, False)[parent] & (parent != NONE))
        outer_spans = np.flatnonzero(outer & np.isin(spans.thread, threads))
        outer_spans = outer_spans[np.argsort(spans.nesting.start[outer_spans], kind="stable")]
        end = spans.nesting.end[outer_spans]
        self._names, self._codes = names.values, packed(names.codes[outer_spans])
        self._begin = packed(spans.nesting.start[outer_spans])
        self._end, self._reach = packed(end), packed(np.maximum.accumulate(end))

    def between(self, begin: int, end: int) -> Iterator[tuple[str, int]]:
        """Yield names and ns that add up to the interval; the first of several threads counts."""
        position = bisect.bisect_right(self._reach, begin)
        time = begin
        while position < len(self._codes) and self._begin[position] < end and time < end:
            low, high = max(self._begin[position], time), min(self._end[position], end)
            if high > low:
                if low > time:
                    yield OUTSIDE, low - time
                yield self._names[self._codes[position]], high - low
                time = high
            position += 1
        if end > time:
            yield OUTSIDE, end - time


def operators(events: Events) -> Callable[[str], bool]:
    """Return the test for operator names, which ranges of the engine or users do not pass.

    Other recorders have nothing between the steps and what the host does in them.
    """
    if events.metadata.recorder in ("JAX", "Proton", "torch.compile"):
        return lambda name: not name.startswith("ProfilerStep#")
    return lambda name: (
        ("::" in name and not name.startswith("autograd::")) or name.startswith(COMPILED_GRAPH)
    )
