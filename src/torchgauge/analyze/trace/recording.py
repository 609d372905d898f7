"""A recorded trace: its window, its calls, and what each of its events counts for.

Host code counts when it begins. Device work counts when it was launched, or when it begins where
the trace has no launch of it; a range on the device as the host's range of the same name and
`External id`. So whatever part of a trace is taken, work goes where its launch goes.

One recorded call of an operator, by name and number, with its arguments and times.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, PHASES, Spans, by_depth
from torchgauge.analyze.timeline.host_work import operators
from torchgauge.analyze.timeline.launches import KINDS, Launched, first_positions, launched
from torchgauge.analyze.timeline.module_calls import Modules
from torchgauge.analyze.timeline.steps import marked
from torchgauge.analyze.trace.device_work import STEP, attributed, marked_steps
from torchgauge.errors import InputError
from torchgauge.readers.kineto.categories import PYTHON, is_launch
from torchgauge.records.timeline.node import base_name
from torchgauge.records.trace.events import ABSENT, Coded, Codes, Events, Integers, Rows
from torchgauge.records.trace.replay import RecordedCall
from torchgauge.records.trace.trace import Contents, Device, UncountedEvents
from torchgauge.similar import did_you_mean, similar

_CALL = re.compile(r"(?P<name>\w+::[\w.]+)(?:#(?P<number>[1-9]\d{0,8}))?")


@dataclasses.dataclass(frozen=True, eq=False)
class Recording:
    """Events with their layers and launches.

    `time` (ns) and `span` have one entry for each event: when it counts, and the place among
    `spans` of the host's span that it is or runs in, NONE outside of all.
    """

    events: Events
    modules: Modules
    spans: Spans
    work: Launched
    time: Integers
    span: Rows

    def around(self, time: Integers, thread: Codes) -> Rows:
        """Return the place of the innermost of the host's spans around each moment."""
        return self.spans.nesting.innermost_at(time, thread)

    def layer(self, span: Rows) -> Integers:
        """Return the layer of each of these spans, NONE outside of layers."""
        if not len(self.modules):  # all is the model's, which is no layer that was recorded
            return np.full(len(span), NONE)
        return np.append(self.spans.layer, NONE)[span]

    def step(self, time: Integers) -> Integers:
        """Return the number of the marked step that each time is in, ABSENT outside of them."""
        events, rows = self.events, self.spans.row
        names = events.name.take(rows)
        mark = names.where(lambda name: STEP.fullmatch(name) is not None)
        steps = marked(mark, events.start[rows], (events.start + events.duration)[rows])
        texts = (STEP.fullmatch(str(names[span])) for span in steps.span.tolist())
        numbers = [int(text[1]) for text in texts if text]
        return np.array([*numbers, ABSENT], np.int64)[steps.containing(time)]


def recording(events: Events) -> Recording:
    """Return the events with their layers and launches."""
    modules, spans = attributed(events)
    work = launched(events, spans)
    time = events.start.copy()
    begun = work.call[work.launched]
    time[work.row[work.launched]] = events.start[begun]
    span = np.full(len(events), NONE)
    span[spans.row] = np.arange(len(spans.row))
    span[work.row] = work.span
    on_device = events.category.where(lambda name: name in (*KINDS, "gpu_user_annotation"))
    other = np.flatnonzero((span == NONE) & ~on_device)
    is_call = events.category.where(is_launch)[other]
    # A call's ends may lie outside its operator by rounding; a function begins where it belongs.
    moment = events.start[other] + np.where(is_call, events.duration[other] // 2, 0)
    span[other] = spans.nesting.innermost_at(moment, events.thread.codes[other])
    device_rows, host_rows = _ranges(events)
    time[device_rows], span[device_rows] = events.start[host_rows], span[host_rows]
    return Recording(events, modules, spans, work, time, span)


def _ranges(events: Events) -> tuple[Rows, Rows]:
    """Return the ranges on devices that the host has too, and the host's, as places in events."""
    table = events.operators
    category = events.category.take(table.row)
    on_device = np.flatnonzero(category.where(lambda name: name == "gpu_user_annotation"))
    on_host = np.flatnonzero(category.where(lambda name: name == "user_annotation"))
    on_host = on_host[np.argsort(table.external_id[on_host], kind="stable")]
    index = first_positions(table.external_id[on_host], table.external_id[on_device])
    device_rows, host_rows = table.row[on_device], np.append(table.row[on_host], NONE)[index]
    names = events.name.codes
    matched = (
        (index != NONE)
        & (table.external_id[on_device] != ABSENT)
        & (names[device_rows] == names[host_rows])
    )
    return device_rows[matched], host_rows[matched]


def event_locations(recording: Recording) -> dict[str, Coded[str] | Integers]:
    """Return the columns by name: spans first, then allocations, then ends of arrows.

    The operator is the outermost of those within one another, as the user called it. What stands
    in none is absent, and all is of arrows but their step.
    """
    memory, arrows = recording.events.memory, len(recording.events.flows.time)
    around = recording.around(memory.time, memory.thread)
    span = np.concatenate([recording.span, around, np.full(arrows, NONE)])
    time = np.concatenate([recording.time, memory.time, recording.events.flows.time])
    layers = tuple(layer.path or layer.name for layer in recording.modules.tree.layers)
    return {
        "step": recording.step(time),
        "layer": _coded(recording.layer(span), layers),
        "phase": _coded(np.append(recording.spans.phase, NONE)[span], PHASES),
        "operator": _operators(recording, span),
    }


def _coded(codes: Integers, values: tuple[str, ...]) -> Coded[str]:
    return Coded(codes.astype(np.int32), values)


def _operators(recording: Recording, span: Rows) -> Coded[Any]:
    names = recording.events.name.take(recording.spans.row)
    operator, parent = names.where(operators(recording.events)), recording.spans.parent
    outermost = np.where(operator, np.arange(len(parent)), NONE)
    for level in by_depth(recording.spans.nesting):
        inner = level[operator[level] & (parent[level] != NONE)]
        inner = inner[operator[parent[inner]]]
        outermost[inner] = outermost[parent[inner]]
    return Coded(np.append(names.codes, ABSENT)[np.append(outermost, NONE)[span]], names.values)


def recorded_call(events: Events, spans: Spans, text: str) -> RecordedCall:
    """Return the call that "aten::mm#12" names, the first one without a number.

    Raises InputError `operator-unknown` for a name that the trace does not have, `call-unknown`
    for a number that is too high, `inputs-absent` where the file has no sizes of it.
    """
    named_call = _CALL.fullmatch(text)
    name = "" if named_call is None else named_call["name"]
    is_operator = events.category.where(lambda category: category == "cpu_op")
    named = events.name.where(lambda other: name in (other, base_name(other)))
    rows = np.flatnonzero(is_operator & named)
    if named_call is None or not len(rows):
        names = {str(other) for other in events.name.values if "::" in str(other)}
        raise InputError(
            f"The trace has no operator '{text}'.",
            id="operator-unknown",
            cause="An operator is named as in the tables, its call by a number: aten::mm#12.",
            remedy=did_you_mean(
                similar(name or text, sorted(names)), "See the operators with --csv operators."
            ),
        )
    number = int(named_call["number"] or 1)
    if number > len(rows):
        raise InputError(
            f"{name} has {len(rows):,} calls, and no call {number:,}.",
            id="call-unknown",
            remedy=f"Choose one from {name}#1 to {name}#{len(rows)}.",
        )
    row = int(rows[np.argsort(events.start[rows], kind="stable")][number - 1])
    return _call(events, spans, row, number, len(rows))


def _call(events: Events, spans: Spans, row: int, number: int, calls: int) -> RecordedCall:
    operators = events.operators
    (places,) = np.nonzero(operators.row == row)
    place = int(places[0]) if len(places) else None
    dims = None if place is None else operators.dims[place]
    types = None if place is None else operators.types[place]
    if place is None or dims is None or types is None:
        raise InputError(
            f"The trace has no sizes of {events.name[row]}.",
            id="inputs-absent",
            cause="It was recorded without shapes.",
            remedy="Record with torch.profiler.profile(record_shapes=True).",
        )
    strides, inputs = operators.strides[place], operators.inputs[place]
    return RecordedCall(
        name=str(events.name[row]),
        number=number,
        calls=calls,
        dims=tuple(dims),
        types=tuple(types),
        strides=None if strides is None else tuple(strides),
        inputs=None if inputs is None else tuple(inputs),
        host=int(events.duration[row]) * 1e-9,
        device=_device_time(events, spans, row),
        device_name=str(events.metadata.devices[0].get("name", ""))
        if events.metadata.devices
        else "",
    )


def _device_time(events: Events, spans: Spans, row: int) -> float | None:
    """Return the seconds of what was launched on the call's thread while it ran; None of none."""
    work = launched(events, spans)
    begin, end = int(events.start[row]), int(events.start[row] + events.duration[row])
    inside = work.launched & (work.time >= begin) & (work.time <= end)
    inside &= events.thread.codes[work.call] == events.thread.codes[row]
    return int(events.duration[work.row[inside]].sum()) * 1e-9 if inside.any() else None


def window(events: Events) -> tuple[int, int]:
    """Return begin and end, in ns, of all events except the profiler's own marks."""
    rows = np.flatnonzero(events.category.where(lambda name: name != "Trace"))
    if not len(rows):
        return 0, 0
    start = events.start[rows]
    return int(start.min()), int((start + np.maximum(events.duration[rows], 0)).max())


_LAYERS = {
    "JAX": "no layers (JAX records no module names): the tree begins with what the host did",
    "Proton": "no layers: the tree begins with the scopes that were marked",
    "torch.compile": "no layers: the tree has the phases of compilation",
    "rocprof": "no layers and no operators: the tree has the program's own ranges",
    "ExecuTorch": "no layers: `torchgauge profile FILE.pte --etrecord FILE` has them",
}
_SHAPES = {
    "JAX": "no shapes: FLOPs and bytes are unknown",
    "Proton": "no shapes and no launch configurations: FLOPs, bytes and occupancy are unknown",
    "torch.compile": "no shapes: FLOPs and bytes are unknown",
    "rocprof": "no shapes: FLOPs and bytes are unknown",
    "ExecuTorch": "no shapes: FLOPs and bytes are unknown",
}
_MEMORY = {
    "JAX": "no allocations: memory is unknown",
    "Proton": "no allocations and no copies: memory and transfers are unknown",
    "torch.compile": "no allocations: memory is unknown",
    "rocprof": "no allocations: memory is unknown",
    "ExecuTorch": "no allocations: memory is unknown",
}
# "launch" is Proton's; "Trace" has the profiler's own marks.
_COUNTED = frozenset(
    ("cpu_op", "user_annotation", "gpu_user_annotation", PYTHON, "cuda_sync", "launch", "Trace")
).union(KINDS)


def origin(events: Events) -> int:
    """Return the origin of the times, in ns of the host's clock."""
    return (events.metadata.base_time or 0) + events.metadata.origin


def contents(events: Events, modules: Modules) -> Contents:
    """Return what is in the file, and what of it no figure counts."""

    def count(*categories: str) -> int:
        return int(events.category.where(lambda name: name in categories).sum())

    begin = None if events.metadata.base_time is None else origin(events)
    first, last = window(events)
    return Contents(
        events=len(events) + len(events.memory.time),
        operators=count("cpu_op"),
        launches=count("launch") + int(events.category.where(is_launch).sum()),
        device_work=count("kernel", "gpu_memcpy", "gpu_memset"),
        python=count("python_function"),
        memory=len(events.memory.time),
        shapes=any(events.operators.dims.values),
        layers=None if not len(modules) else "torchgauge" if modules.are_ours else "torch",
        begin=None if begin is None else begin + first,
        end=None if begin is None else begin + last,
        recorder=events.metadata.recorder,
        steps=marked_steps(events),
        uncounted=uncounted(events),
    )


def devices(events: Events) -> Iterator[Device]:
    """Yield the devices of the file's header that have a number."""
    for properties in events.metadata.devices:
        number = _integer(properties.get("id"))
        if number is None:
            continue
        major, minor = properties.get("computeMajor"), properties.get("computeMinor")
        yield Device(
            number=number,
            name=str(properties.get("name", "")),
            memory=_integer(properties.get("totalGlobalMem")),
            capability=f"{major}.{minor}" if major is not None and minor is not None else "",
            multiprocessors=_integer(properties.get("numSms")),
            threads=_integer(properties.get("maxThreadsPerMultiprocessor")),
        )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def uncounted(events: Events) -> tuple[UncountedEvents, ...]:
    """Return the categories that no figure counts, most events first."""
    codes = events.category.codes + 1  # 0 is none
    counts = np.bincount(codes, minlength=len(events.category.values) + 1)
    times = np.bincount(codes, np.maximum(events.duration, 0), len(counts))
    records = [
        UncountedEvents(category=name, count=int(count), time=float(time) * 1e-9)
        for name, count, time in zip(("", *events.category.values), counts, times, strict=True)
        if count and name not in _COUNTED and not is_launch(name)
    ]
    return tuple(sorted(records, key=lambda record: -record.count))


def not_recorded(events: Events, modules: Modules) -> Iterator[str]:
    """Yield a note for each kind of data that was not recorded."""
    by = events.metadata.recorder or ""
    if not len(events) + len(events.memory.time):
        yield "no events: the profiler was stopped before anything ran"
        return
    if not len(modules):
        yield _LAYERS.get(by, "no layers (recorded without stacks): the tree begins with operators")
    if not any(events.operators.dims.values):
        yield _SHAPES.get(by, "no shapes (record_shapes=False): FLOPs and bytes are unknown")
    if not len(events.memory.time):
        yield _MEMORY.get(by, "no memory events (profile_memory=False): memory is unknown")
    if not len(events.device_work.row):
        yield _without_device_work(events)
    elif not len(events.launches.row):
        yield "no launches: time spent waiting for the host is unknown"
    elif by == "Proton" and not (events.device_work.correlation > 0).all():
        yield "no arrows to some kernels (a graph has one to its first): their scope is unknown"
    if by == "Proton" and len(events.device_work.row):
        yield "no device numbers: several devices are shown as one"


def _without_device_work(events: Events) -> str:
    if events.metadata.recorder == "torch.compile":
        return "no runs: only compilation was recorded"
    if names := ", ".join(record.category or "no category" for record in uncounted(events)):
        return f"no device work that is known as such: events of {names} are counted in no figure"
    return "no device work: only the host was recorded"
