"""The lanes of a recording: critical path, devices and streams, threads; those of one step."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from torchgauge.analyze.lanes.packing import MAX_EVENTS, Labels, LaneEvents, lane, packed
from torchgauge.analyze.timeline.attribution import PHASES, RECOMPUTE_END, Spans
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.launches import Launched, launched
from torchgauge.analyze.timeline.steps import marked
from torchgauge.analyze.trace.critical_path import Segment
from torchgauge.analyze.trace.device_work import Activities, device_activities
from torchgauge.analyze.trace.idle_times import gaps
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.readers.kineto.categories import PYTHON
from torchgauge.readers.nesting import ROUNDING
from torchgauge.records.timeline.tree import Kind, Timeline
from torchgauge.records.trace.events import ABSENT, Events, Integers, Rows

_STEP = re.compile(r"ProfilerStep#(\d+)|tg@(\d+)")
_WORK: tuple[Kind, ...] = ("compute", "communication", "copy")
_IDLE: tuple[Kind, ...] = ("idle: host", "idle: device", "idle: other", "idle: unknown")
_CATEGORIES: dict[str, Kind] = {"cpu_op": "operator", PYTHON: "python"}
_CALLS = ("_runtime", "_driver")
_DEVICE_RANGE = "gpu_user_annotation"
_RANGES = ("user_annotation", _DEVICE_RANGE)
MAX_SAVED_EVENTS = 20_000
MAX_BYTES = 64_000


@dataclasses.dataclass(frozen=True, eq=False)
class Recorded:
    """A recording and what was found in it.

    `rows` marks the events to draw; None is all. `marks` are the names of spans that stand for
    others, `called` gives the name of a device.
    """

    events: Events
    spans: Spans
    tree: CallTree
    work: Launched
    activities: Activities
    window: tuple[int, int]
    path: Sequence[Segment] = ()
    marks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: np.ndarray | None = None
    called: Callable[[int | None], str] = lambda device: (
        "GPU" if device is None else f"GPU {device}"
    )

    def is_drawn(self, rows: Rows) -> np.ndarray:
        """Return which of these events are drawn."""
        return np.ones(len(rows), np.bool_) if self.rows is None else self.rows[rows]


def timeline(recorded: Recorded, *, max_bytes: int, max_events: int = MAX_EVENTS) -> Timeline:
    """Return the lanes of a recording, packed within these limits."""
    labels = Labels()
    places = _Places(recorded)
    lanes = [
        lane
        for lane in (
            *_path(recorded, labels),
            *_devices(recorded, labels, places),
            *_threads(recorded, labels, places),
        )
        if len(lane)
    ]
    return packed(lanes, labels, places.texts, recorded.window, max_bytes, max_events)


class _Places:
    """The layer and phase of each span, as numbers of texts."""

    def __init__(self, recorded: Recorded) -> None:
        spans = recorded.spans
        code = (spans.layer.astype(np.int64) + 1) * len(PHASES) + spans.phase
        codes, number = np.unique(code, return_inverse=True)
        named = bool(spans.is_layer.any())
        self.texts = tuple(
            (
                _layer_name(recorded.tree, code // len(PHASES) - 1)
                if named and code >= len(PHASES)
                else "",
                PHASES[code % len(PHASES)],
            )
            for code in codes.tolist()
        )
        self._of_span = np.append(number.reshape(-1), ABSENT)

    def numbers(self, span: Rows) -> Integers:
        """Return the place of each span, ABSENT of none."""
        return self._of_span[span]


def _layer_name(tree: CallTree, number: int) -> str:
    layer = tree.layers[number]
    return layer.path or layer.name


def _path(recorded: Recorded, labels: Labels) -> Iterator[LaneEvents]:
    """Yield the critical path; a piece of device work has its name."""
    segments = recorded.path
    if not segments:
        return
    names, codes = recorded.events.name, recorded.events.name.codes[recorded.work.row]
    label = [
        labels.number(str(names.values[codes[segment.activity]]), segment.link)
        if segment.link in _WORK
        else labels.number(segment.link, "pause" if segment.link == "wait" else segment.link)
        for segment in segments
    ]
    begin = np.array([segment.begin for segment in segments], np.int64)
    end = np.array([segment.end for segment in segments], np.int64)
    yield lane("Critical path", "path", begin, end, np.array(label, np.int64))


def _devices(recorded: Recorded, labels: Labels, places: _Places) -> Iterator[LaneEvents]:
    """Yield for each device its idle time by cause, and the work of each stream."""
    work, activities = recorded.work, recorded.activities
    names = [str(name) for name in recorded.events.name.values]
    kinds = len(_WORK)
    named: list[tuple[str, Kind]] = [(name, kind) for name in names for kind in _WORK]
    code = recorded.events.name.codes[work.row].astype(np.int64) * kinds + activities.kind
    launch = np.where(work.launched, work.call, ABSENT)
    drawn = recorded.is_drawn(work.row)
    for device in np.unique(activities.device).tolist():
        on_device = drawn & (activities.device == device)
        title = recorded.called(None if device == ABSENT else device)
        if not on_device.any():
            continue
        begin, length, cause, _ = gaps(activities.take(on_device))
        idle = labels.numbers([(kind, kind) for kind in _IDLE], cause)
        yield lane(f"{title}: idle, by cause", "idle", begin, begin + length, idle)
        for stream in np.unique(activities.stream[on_device]).tolist():
            chosen = np.flatnonzero(on_device & (activities.stream == stream))
            yield lane(
                f"{title}, stream {'unknown' if stream == ABSENT else stream}",
                "device",
                activities.begin[chosen],
                activities.end[chosen],
                labels.numbers(named, code[chosen]),
                place=places.numbers(work.span[chosen]),
                source=work.row[chosen],
                launch=launch[chosen],
                tolerance=ROUNDING,
            )


def _threads(recorded: Recorded, labels: Labels, places: _Places) -> Iterator[LaneEvents]:
    """Yield the spans of each thread of the host, that with most time first."""
    events, spans, work = recorded.events, recorded.spans, recorded.work
    is_other = events.category.where(lambda name: name != "Trace")
    is_other &= ~events.name.where(lambda name: name == RECOMPUTE_END)
    is_other[work.row] = False
    rows = np.flatnonzero(is_other)
    rows = rows[recorded.is_drawn(rows)]
    span_of = np.full(len(events), ABSENT)
    span_of[spans.row] = np.arange(len(spans.row))
    span = span_of[rows]
    label = _labels(recorded, labels, rows, span)
    begin = events.start[rows]
    end = begin + np.maximum(events.duration[rows], 0)
    thread = events.thread.codes[rows]
    tolerance = 0 if (events.start % ROUNDING).any() else ROUNDING
    times = np.bincount(thread + 1, end - begin)
    is_device_range = events.category.take(rows).where(lambda name: name == _DEVICE_RANGE)
    on_devices = set(thread[is_device_range].tolist())
    order = sorted(
        np.unique(thread).tolist(), key=lambda code: (code not in on_devices, -times[code + 1])
    )
    for code in order:
        chosen = np.flatnonzero(thread == code)
        name = _thread_name(events, code)
        yield lane(
            f"Ranges on the device: {name}" if code in on_devices else name,
            "ranges" if code in on_devices else "host",
            begin[chosen],
            end[chosen],
            label[chosen],
            place=places.numbers(span[chosen]),
            source=rows[chosen],
            tolerance=tolerance,
        )


def _labels(recorded: Recorded, labels: Labels, rows: Rows, span: Rows) -> Integers:
    """Return the names of the host's spans: layers by their qualified names, steps by number."""
    events, spans = recorded.events, recorded.spans
    name_codes, category_codes = events.name.codes[rows], events.category.codes[rows]
    is_layer = np.append(spans.is_layer, False)[span]
    layer = np.where(is_layer, np.append(spans.layer, ABSENT)[span], ABSENT)
    columns = np.column_stack([name_codes, category_codes, layer]).astype(np.int64)
    distinct, codes = np.unique(columns, axis=0, return_inverse=True)
    named = [_named(recorded, *values) for values in distinct.tolist()]
    return labels.numbers(named, codes.reshape(-1))


def _named(recorded: Recorded, name: int, category: int, layer: int) -> tuple[str, Kind]:
    if layer != ABSENT:
        return _layer_name(recorded.tree, layer), "layer"
    text = "" if name == ABSENT else str(recorded.events.name.values[name])
    of_category = "" if category == ABSENT else str(recorded.events.category.values[category])
    if step := _STEP.fullmatch(text):
        return f"step {step[1] or step[2]}", "step"
    if text in recorded.marks:
        return recorded.marks[text], "range"
    if of_category.endswith(_CALLS):
        return text, "call"
    return text, "range" if of_category in _RANGES else _CATEGORIES.get(of_category, "other")


def _thread_name(events: Events, code: int) -> str:
    if code == ABSENT:
        return "No thread"
    process, thread = events.thread.values[code]
    metadata = events.metadata
    name = metadata.thread_names.get((process, thread)) or f"thread {thread}"
    title = metadata.process_names.get(process) or "process"
    return f"{title} {process}, {name}"


def step_timeline(
    events: Events,
    spans: Spans,
    tree: CallTree,
    step: re.Pattern[str],
    marks: Mapping[str, str] | None = None,
) -> Timeline | None:
    """Return the timeline of the step of middle length; None without a marked step.

    Host code belongs to the step if it begins in it, device work if its launch does. `marks` are
    the names of spans that stand for others.
    """
    names = events.name.take(spans.row)
    is_step = names.where(lambda name: step.fullmatch(name) is not None)
    steps = marked(is_step, spans.nesting.start, spans.nesting.end)
    if not len(steps):
        return None
    middle = np.argsort(steps.end - steps.begin, kind="stable")[len(steps) // 2]
    begin, end = int(steps.begin[middle]), int(steps.end[middle])
    work = launched(events, spans)
    rows = _rows_of(events, work, begin, end)
    ends = events.start[rows] + np.maximum(events.duration[rows], 0)
    recorded = Recorded(
        events,
        spans,
        tree,
        work,
        device_activities(events, work, Facts(events, work)),
        (begin, max(end, int(ends.max(initial=end)))),
        marks=marks or {},
        rows=rows,
    )
    return timeline(recorded, max_bytes=MAX_BYTES, max_events=MAX_SAVED_EVENTS)


def _rows_of(events: Events, work: Launched, begin: int, end: int) -> np.ndarray:
    """Return which events belong to the step, as a mask."""
    time = events.start.copy()
    begun = work.call[work.launched]
    time[work.row[work.launched]] = events.start[begun]
    return np.asarray((time >= begin) & (time < end))
