"""What work and the host waited for, as far as the recording says it.

Kineto records waits of streams and of the host (`cuda_sync`) where torch was asked for them
(`enable_cuda_sync_events`). Each names its call, and a wait for an event also the call that
recorded the event: what was launched to the event's stream before that call is awaited.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import numpy as np

from torchgauge.analyze.communication.collectives import message
from torchgauge.analyze.timeline.launches import first_positions
from torchgauge.analyze.trace.device_work import COMMUNICATION, Activities
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.analyze.trace.synchronisations import Waits
from torchgauge.records.trace.events import ABSENT, Events, Integers, RecordedWaits

_WAIT_OF_STREAM, _EVENT, _STREAM = "Stream Wait Event", "Event Sync", "Stream Sync"


@dataclasses.dataclass(frozen=True, eq=False)
class Dependencies:
    """Which work waited for which; `recorded`: the recording has waits of streams and of the host.

    `producers` are the pieces of work that a piece's stream waited for. `awaited` is the
    piece that the host waited for in each of its waits, `transfer` the ns of each communication
    kernel that are no waiting for other ranks; ABSENT where that is not known.
    """

    recorded: bool
    producers: dict[int, list[int]]
    awaited: Integers
    transfer: Integers


def dependencies(
    events: Events, activities: Activities, facts: Facts, waits: Waits
) -> Dependencies:
    """Return what work and the host waited for, as far as the recording says it."""
    recorded = events.recorded_waits
    producers: dict[int, list[int]] = {}
    awaited = np.full(len(waits.row), ABSENT)
    if len(recorded.row):
        calls = _Calls(events, recorded)
        streams = _Streams(activities)
        producers = _producers(events, recorded, calls, streams)
        awaited = _awaited(events, recorded, calls, streams, waits)
    transfer = _transfer(activities, facts)
    return Dependencies(bool(len(recorded.row)), producers, awaited, transfer)


class _Calls:
    """The host's call of each recorded wait, and the call that recorded the event it waits for.

    `row` is the place of the wait's call in the events; `begin` and `recorded` are when the two
    began. ABSENT where the recording has no such call.
    """

    def __init__(self, events: Events, waits: RecordedWaits) -> None:
        order = np.argsort(events.launches.correlation, kind="stable")
        correlation = events.launches.correlation[order]
        rows = np.append(events.launches.row[order], ABSENT)
        start = np.append(events.start, ABSENT)
        self.row = rows[first_positions(correlation, waits.correlation)]
        self.begin = start[self.row]
        self.recorded = start[rows[first_positions(correlation, waits.awaited_record)]]


class _Streams:
    """The work of each stream in the order of its launches."""

    def __init__(self, activities: Activities) -> None:
        self._activities = activities
        order = np.argsort(activities.launch, kind="stable")
        groups: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        devices, streams = activities.device[order].tolist(), activities.stream[order].tolist()
        for index, device, stream in zip(order.tolist(), devices, streams, strict=True):
            groups[device, stream].append(index)
        self._work = {key: np.array(group) for key, group in groups.items()}
        self._launch = {key: activities.launch[group] for key, group in self._work.items()}

    def last_before(self, device: int, stream: int, time: int) -> int:
        """Return the piece that was launched last before this time, ABSENT where none was."""
        work = self._work.get((device, stream), ())
        count = np.searchsorted(self._launch.get((device, stream), ()), time, side="left")
        return int(work[count - 1]) if count else ABSENT

    def first_since(self, device: int, stream: int, time: int) -> int:
        """Return the piece that was launched first from this time on, ABSENT where none was."""
        work = self._work.get((device, stream), ())
        index = np.searchsorted(self._launch.get((device, stream), ()), time, side="left")
        return int(work[index]) if index < len(work) else ABSENT

    def last_ended(self, device: int, time: int) -> int:
        """Return which of all pieces of a device launched before this time ended last."""
        streams = [stream for number, stream in self._work if number == device]
        last = [self.last_before(device, stream, time) for stream in streams]
        launched = [index for index in last if index != ABSENT]
        return max(launched, key=lambda index: int(self._activities.end[index]), default=ABSENT)


def _producers(
    events: Events, waits: RecordedWaits, calls: _Calls, streams: _Streams
) -> dict[int, list[int]]:
    """Return by piece of work those that its stream waited for."""
    result: defaultdict[int, list[int]] = defaultdict(list)
    of_stream = events.name.take(waits.row).where(lambda name: name == _WAIT_OF_STREAM)
    has_calls = (calls.begin != ABSENT) & (calls.recorded != ABSENT)
    for index in np.flatnonzero(of_stream & has_calls).tolist():
        device = int(waits.device[index])
        awaited_stream, record = int(waits.awaited_stream[index]), int(calls.recorded[index])
        producer = streams.last_before(device, awaited_stream, record)
        consumer = streams.first_since(device, int(waits.stream[index]), int(calls.begin[index]))
        if ABSENT not in (producer, consumer):
            result[consumer].append(producer)
    return dict(result)


def _awaited(
    events: Events, waits: RecordedWaits, calls: _Calls, streams: _Streams, host_waits: Waits
) -> Integers:
    """Return the piece of work that the host waited for in each of its waits."""
    names = events.name.take(waits.row)
    by_call = {row: index for index, row in enumerate(calls.row.tolist()) if row != ABSENT}
    awaited = np.full(len(host_waits.row), ABSENT)
    for number, row in enumerate(host_waits.row.tolist()):
        index = by_call.get(row)
        if index is None:
            continue
        name, device = str(names[index]), int(waits.device[index])
        begin = int(calls.begin[index])
        if name.startswith(_STREAM):
            awaited[number] = streams.last_before(device, int(waits.stream[index]), begin)
        elif name == _EVENT and calls.recorded[index] != ABSENT:
            stream = int(waits.awaited_stream[index])
            awaited[number] = streams.last_before(device, stream, int(calls.recorded[index]))
        elif name != _EVENT:
            awaited[number] = streams.last_ended(device, begin)
    return awaited


def _transfer(activities: Activities, facts: Facts) -> Integers:
    """Return the ns of the shortest communication kernel of each one's kind.

    ABSENT for other work, and where there is one of the kind alone.
    """
    groups: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for index in np.flatnonzero(activities.kind == COMMUNICATION).tolist():
        key = (*message(facts, index), facts.group[index], facts.group_ranks[index])
        groups[key].append(index)
    transfer = np.full(len(activities), ABSENT)
    duration = activities.end - activities.begin
    for (_, _, size, *_), group in groups.items():
        if len(group) > 1 and size is not None:  # of an unknown size they may differ in it
            transfer[group] = duration[group].min()
    return transfer
