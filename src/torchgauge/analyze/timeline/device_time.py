"""Device time by node of the tree: every kernel, copy and memory set is below one node.

The whole is the sum of the durations of all device work ("GPU time"): every piece is in one node.
Work of several streams at once counts for each; how long a device was busy is in `DeviceUse`. By
the first that applies, a piece belongs to

- "communication" (NCCL, RCCL): its time is mostly waiting for other ranks, in whatever layer it was
  launched;
- "launched before the window", where the trace has no launch of it;
- "memory copies": copies and memory sets launched neither in a layer nor by the optimizer, there
  below the operator that launched them;
- the node whose host code launched it. Backward operators are in their layer already.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, OPTIMIZER, ZERO_GRAD, Spans
from torchgauge.analyze.timeline.launches import Launched, has_all_launches
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.records.timeline.tree import DeviceUse
from torchgauge.records.trace.breakdown import Kernel
from torchgauge.records.trace.events import ABSENT, Events, Integers


@dataclasses.dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals from `begin` to `end` in ns, in ascending order; no two overlap."""

    begin: Integers
    end: Integers

    @property
    def length(self) -> int:
        """The time in all of them, in ns."""
        return int((self.end - self.begin).sum())

    def before(self, time: Integers) -> Integers:
        """Return the length of the intervals before each time."""
        if not len(self.begin):
            return np.zeros(len(time), np.int64)
        lengths = self.end - self.begin
        cumulative = np.concatenate([[0], np.cumsum(lengths)])
        last_begin = np.searchsorted(self.begin, time, side="right") - 1
        index = np.maximum(last_begin, 0)
        partly = np.minimum(time - self.begin[index], lengths[index])
        return np.where(last_begin < 0, 0, cumulative[index] + partly)

    def within(self, begin: int, end: int) -> int:
        """Return the length of the intervals between two times."""
        low, high = self.before(np.array([begin, end]))
        return int(high - low)

    def outside(self, other: Intervals) -> Intervals:
        """Return the parts of the intervals that are in none of the others."""
        cuts = np.sort(np.concatenate([self.begin, self.end, other.begin, other.end]))
        in_self, in_other = np.diff(self.before(cuts)) > 0, np.diff(other.before(cuts)) > 0
        exclusive = in_self & ~in_other
        return Intervals(cuts[:-1][exclusive], cuts[1:][exclusive])


def union(begin: Integers, end: Integers, window: tuple[int, int]) -> Intervals:
    """Return the times within the window that any of these intervals covers."""
    begin, end = np.clip(begin, *window), np.clip(end, *window)
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    if not len(begin):
        return Intervals(begin, end)
    reach = np.maximum.accumulate(end)
    first = np.concatenate([[True], begin[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(begin[first], reach[last])


COMMUNICATION = "communication"
COPIES = "memory copies"
BEFORE = "launched before the window"


@dataclasses.dataclass(frozen=True)
class DeviceNode:
    """A kernel's node in the making, below the node `parent`; `time` (ns) and `calls` by step."""

    parent: int
    phase: int
    name: str
    kernel: Kernel
    time: Integers
    calls: Integers


def device_nodes(
    events: Events,
    spans: Spans,
    work: Launched,
    facts: Facts,
    *,
    of_span: Integers,
    copying: Mapping[int, int],
    step: Integers,
    steps: int,
    bucket: dict[str, int],
    outside: int,
) -> list[DeviceNode]:
    """Return the nodes of all work of the steps, in the order of their first launches.

    `of_span` is the node of each host span, `step` that of each piece of work (NONE: in none),
    `bucket` the node of each bucket, `outside` that of launches outside of all spans; `copying` is
    as in `NodeTable`.
    """
    parent, phase = owners(spans, work, facts, of_span, copying, bucket, outside)
    if not has_all_launches(events):
        parent[parent == bucket[BEFORE]] = 0  # all that is known: the model's own
    within = np.flatnonzero(step != NONE)
    if not len(within):
        return []
    columns = (parent, phase, *facts.columns())
    groups = _groups((column[within].astype(np.int64) for column in columns), len(within))
    duration = events.duration[work.row]
    nodes = []
    for members in groups:
        group = within[members]
        first = group[0]
        nodes.append(
            DeviceNode(
                int(parent[first]),
                int(phase[first]),
                str(facts.name[int(first)]),
                facts.kernel(group),
                np.bincount(step[group], duration[group], steps).astype(np.int64),
                np.bincount(step[group], minlength=steps),
            )
        )
    return nodes


def owners(
    spans: Spans,
    work: Launched,
    facts: Facts,
    of_span: Integers,
    copying: Mapping[int, int],
    bucket: dict[str, int],
    outside: int,
) -> tuple[Integers, Integers]:
    """Return the node that each piece of work belongs to, and its phase."""
    parent = np.append(of_span, NONE)[work.span]
    parent[parent == NONE] = outside
    phase = np.append(spans.phase, NONE)[work.span]
    copied = copied_outside(spans, work, facts)
    parent[copied] = [copying.get(node, bucket[COPIES]) for node in parent[copied].tolist()]
    phase[copied] = NONE
    for name, selected in ((BEFORE, ~work.launched), (COMMUNICATION, facts.communicates)):
        parent[selected] = bucket[name]
        phase[selected] = NONE
    return parent, phase


def copied_outside(spans: Spans, work: Launched, facts: Facts) -> np.ndarray:
    """Return which are copies and memory sets launched neither in a layer nor by the optimizer."""
    in_layer = np.append(spans.layer, NONE)[work.span] != NONE
    optimizing = np.isin(np.append(spans.phase, NONE)[work.span], (OPTIMIZER, ZERO_GRAD))
    return np.asarray(~facts.is_kernel & ~in_layer & ~optimizing)


def _groups(columns: Iterable[Integers], count: int) -> list[Integers]:
    """Return the places that are equal in all columns together, by the first of each.

    One number per place stands for all its columns: numpy's own search for equal rows takes seven
    times as long.
    """
    number = np.zeros(count, np.int64)
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if high - low > len(column):
            column = np.unique(column, return_inverse=True)[1]
            low, high = 0, int(column.max())
        if int(number.max()) * (high - low + 1) > 2**62:
            number = np.unique(number, return_inverse=True)[1]
        number = number * (high - low + 1) + (column - low)
    _, first, group = np.unique(number, return_index=True, return_inverse=True)
    order = np.argsort(first[group], kind="stable")
    return np.split(order, np.flatnonzero(np.diff(first[group][order])) + 1)


def device_use(
    events: Events, rows: Integers, device: Integers, begins: Integers, ends: Integers
) -> Iterator[DeviceUse]:
    """Yield by device the medians over steps of the time it was busy and idle.

    `rows` are the events of its work, `device` the numbers of their devices (ABSENT where the trace
    does not say), `begins` and `ends` (ns) those of the steps.
    """
    for number in np.unique(device).tolist():
        device_rows = rows[device == number]
        start = events.start[device_rows]
        end = start + events.duration[device_rows]
        steps = list(zip(begins.tolist(), ends.tolist(), strict=True))
        busy = [union(start, end, step).length for step in steps]
        idle = [high - low - time for (low, high), time in zip(steps, busy, strict=True)]
        if steps:
            yield DeviceUse(
                device=None if number == ABSENT else number,
                busy=statistics.median(busy) * 1e-9,
                idle=statistics.median(idle) * 1e-9,
            )
