"""What work and the host waited for, as far as the recording says it.

Kineto records waits of streams and of the host (`cuda_sync`) where torch was asked for them
(`enable_cuda_sync_events`). Each names its call, and a wait for an event also the call that
recorded the event: what was launched to the event's stream before that call is awaited.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.communication.collectives import message
from torchgauge.analyze.timeline.attribution import NONE, Spans
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.host_work import operators
from torchgauge.analyze.timeline.launches import first_positions
from torchgauge.analyze.trace.device_work import COMMUNICATION, Activities
from torchgauge.analyze.trace.kernel_facts import Facts, pageable
from torchgauge.readers.kineto.categories import MODULE_CALL, is_launch
from torchgauge.records.trace.events import (
    ABSENT,
    Coded,
    Codes,
    Events,
    Integers,
    RecordedWaits,
    Rows,
)
from torchgauge.records.trace.trace import Synchronisation

_WAIT_OF_STREAM, _EVENT, _STREAM = "Stream Wait Event", "Event Sync", "Stream Sync"
# cudaStreamWaitEvent has a stream wait, not the host. hipMemcpyWithStream returns when it is done.
# Other devices' runtimes call it so too (zeEventHostSynchronize, aclrtSynchronizeStream).
_WAITS = re.compile(r"\w*Synchronize\w*|(cuda|hip)Memcpy|hipMemcpyWithStream")
# A copy to memory of the host that is not pinned returns when it is done, whatever its name says
# (CUDA Runtime API, "API synchronization behavior"); one from such memory is staged, and is not.
_COPIES = re.compile(r"(cu|cuda)Memcpy\w*Async\w*")
_FUNCTION = re.compile(r"(?P<file>.+\.py)\(\d+\): .+", re.DOTALL)
_FOREIGN = re.compile(
    r"(.*/)?(torch|torchgauge|_distutils_hack|(site|dist)-packages)/|.*/lib/python[\d.]+/"
)


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


class Waits(NamedTuple):
    """The calls in which the host waited: places in the events, begin and end in ns, threads."""

    row: Rows
    begin: Integers
    end: Integers
    thread: Codes


def waits(events: Events) -> Waits:
    """Return the calls that end only when a device has done something, in order of their ends."""
    calls = events.category.where(is_launch)
    waiting = events.name.where(lambda name: bool(_WAITS.fullmatch(name)))
    waiting[_to_pageable(events)] = True
    row = np.flatnonzero(calls & waiting)
    end = events.start[row] + events.duration[row]
    row = row[np.argsort(end, kind="stable")]
    begin = events.start[row]
    return Waits(row, begin, begin + events.duration[row], events.thread.codes[row])


def _to_pageable(events: Events) -> Rows:
    """Return the calls that copied to pageable memory of the host, as places in the events."""
    work, launches = events.device_work, events.launches
    names = events.name.take(work.row)
    copies = names.where(lambda name: "DtoH" in name and pageable(name) is True)
    called = np.isin(launches.correlation, work.correlation[copies & (work.correlation > 0)])
    row = launches.row[called]
    return row[events.name.take(row).where(lambda name: bool(_COPIES.fullmatch(name)))]


def synchronisations(
    events: Events, spans: Spans, tree: CallTree, host_waits: Waits, caused: Integers
) -> tuple[Synchronisation, ...]:
    """Return the waits by call and by the operator around them, most time first.

    `caused` is the time in ns for which the device waited for the host because of each.
    """
    inner_spans = spans.nesting.innermost_at(
        (host_waits.begin + host_waits.end) // 2, host_waits.thread
    )
    names, is_operator = events.name.take(spans.row), operators(events)
    groups: dict[tuple[str, str], list[int]] = {}
    for index, span in enumerate(inner_spans.tolist()):
        call = str(events.name[int(host_waits.row[index])])
        groups.setdefault((call, operator(names, spans, span, is_operator)), []).append(index)
    result = []
    for (call, name), group in groups.items():
        time = host_waits.end[group] - host_waits.begin[group]
        layers = np.append(spans.layer, NONE)[inner_spans[group]]  # index −1 is appended
        main_layer = _main_layer(layers, time)
        result.append(
            Synchronisation(
                call=call,
                operator=name,
                layer=tree.layers[main_layer].path if main_layer != NONE else "",
                count=len(group),
                time=int(time.sum()) * 1e-9,
                idle=int(caused[group].sum()) * 1e-9,
                function=_user_function(events, int(host_waits.row[group[int(np.argmax(time))]])),
            )
        )
    return tuple(sorted(result, key=lambda record: -record.time))


def operator(names: Coded[str], spans: Spans, span: int, is_operator: Callable[[str], bool]) -> str:
    """Return the operator as the user called it: the outermost of those within one another."""
    name = ""
    while span != NONE and is_operator(candidate := str(names[span])):
        name, span = candidate, int(spans.parent[span])
    return name


def _main_layer(layers: Integers, time: Integers) -> int:
    values, inverse = np.unique(layers, return_inverse=True)
    return int(values[np.argmax(np.bincount(inverse, time))])


def _user_function(events: Events, row: int) -> str:
    """Return the innermost function of the user's around an event; "" where there is none.

    torch writes it as "train.py(12): step", with the line at which the function begins.
    """
    python = events.python.row
    time = int(events.start[row]) + int(events.duration[row]) // 2
    start, thread = events.start[python], events.thread.codes[python]
    around = (start <= time) & (start + events.duration[python] > time)
    around &= thread == events.thread.codes[row]
    calls = python[around]
    for call in calls[np.argsort(-events.start[calls], kind="stable")].tolist():
        name = str(events.name[call])
        if _is_own(name):
            return name
    return ""


def _is_own(name: str) -> bool:
    match = _FUNCTION.fullmatch(name)
    if match is None or name.startswith((MODULE_CALL, "<")):
        return False
    file = match["file"]
    package = file.partition("/")[0].removesuffix(".py")
    return _FOREIGN.match(file) is None and package not in sys.stdlib_module_names
