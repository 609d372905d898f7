"""Device work as plain columns: when it ran, where, what kind it was, and when it was launched."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from torchgauge.analyze.timeline.launches import Launched
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.records.trace.events import ABSENT, Events, Integers

COMPUTE, COMMUNICATION, COPY = range(3)


@dataclasses.dataclass(frozen=True, eq=False)
class Activities:
    """Device work as columns, one entry each; times in ns.

    `kind` is COMPUTE, COMMUNICATION or COPY. `launch` is when the host's call began that launched
    it, ABSENT where the trace has none.
    """

    begin: Integers
    end: Integers
    kind: Integers
    launch: Integers
    device: Integers
    stream: Integers

    def take(self, entries: np.ndarray) -> Activities:
        """Return these entries (indices or a mask)."""
        columns = (getattr(self, field.name) for field in dataclasses.fields(self))
        return Activities(*(column[entries] for column in columns))

    def by(self, column: Integers) -> Iterator[tuple[int, Activities]]:
        """Yield each value of a column, in order, with the activities that have it, in theirs."""
        order = np.argsort(column, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(column[order])) + 1, len(order))
        begin = 0
        for end in ends.tolist() if len(order) else ():
            yield int(column[order[begin]]), self.take(order[begin:end])
            begin = end

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def window(self) -> tuple[int, int]:
        """From the first begin to the last end."""
        return int(self.begin.min()), int(self.end.max())


def device_activities(events: Events, work: Launched, facts: Facts) -> Activities:
    """Return all device work, in the order of `work`."""
    begin = events.start[work.row]
    kind = np.where(facts.is_kernel, COMPUTE, COPY).astype(np.int8)
    return Activities(
        begin=begin,
        end=begin + np.maximum(events.duration[work.row], 0),
        kind=np.where(facts.communicates, COMMUNICATION, kind),
        launch=np.where(work.launched, events.start[work.call], ABSENT),
        device=facts.device,
        stream=facts.stream,
    )
