"""Synchronisations: the calls in which the host waited for a device."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, Spans
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.host_work import operators
from torchgauge.analyze.trace.kernel_facts import pageable
from torchgauge.readers.kineto.categories import MODULE_CALL, is_launch
from torchgauge.records.trace.events import Coded, Codes, Events, Integers, Rows
from torchgauge.records.trace.trace import Synchronisation

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
