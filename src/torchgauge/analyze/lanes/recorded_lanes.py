"""The lanes of a recording: critical path, devices and streams, threads; those of one step."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np

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
from torchgauge.records.timeline.tree import Group, Kind, Lane, Timeline
from torchgauge.records.trace.events import ABSENT, Events, Integers, Rows

MAX_ROWS = 64


@dataclasses.dataclass(frozen=True, eq=False)
class LaneEvents:
    """One lane's events, in order of row and begin; times in ns.

    `label` numbers the names, `place` the layers and phases (ABSENT without one). `source` is the
    event's place in the recording, ABSENT for what is derived; `launch` that of its launch.
    """

    name: str
    group: Group
    begin: Integers
    end: Integers
    label: Integers
    place: Integers
    source: Rows
    launch: Rows
    row: Integers
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.begin)


def lane(
    name: str,
    group: Group,
    begin: Integers,
    end: Integers,
    label: Integers,
    *,
    place: Integers | None = None,
    source: Rows | None = None,
    launch: Rows | None = None,
    tolerance: int = 0,
) -> LaneEvents:
    """Return a lane of these events, with their rows."""
    none = np.full(len(begin), ABSENT)
    end = np.maximum(end, begin)
    order = np.lexsort((-end, begin))
    row = rows(begin[order], end[order], tolerance)
    drawn = np.flatnonzero(row != ABSENT)
    drawn = drawn[np.argsort(row[drawn], kind="stable")]
    chosen = order[drawn]
    return LaneEvents(
        name=name,
        group=group,
        begin=begin[chosen],
        end=end[chosen],
        label=label[chosen],
        place=(none if place is None else place)[chosen],
        source=(none if source is None else source)[chosen],
        launch=(none if launch is None else launch)[chosen],
        row=row[drawn],
        left_out=len(row) - len(drawn),
    )


def rows(start: Integers, end: Integers, tolerance: int = 0) -> Integers:
    """Return the row of each event, ABSENT for those nested deeper than MAX_ROWS.

    The events are in order of start, the longer first. An event has the first row in which all
    before it have ended; one that reaches into the next by no more than `tolerance` has ended.
    """
    row = np.full(len(start), ABSENT, np.int32)
    waiting = np.arange(len(start))
    for number in range(MAX_ROWS):
        if not len(waiting):
            break
        begin, reach = start[waiting], np.maximum.accumulate(end[waiting])
        before = np.concatenate([[np.iinfo(np.int64).min // 2], reach[:-1]])
        fits = begin >= before
        if tolerance:
            fits |= (begin >= before - tolerance) & (end[waiting] > before)
        row[waiting[fits]] = number
        waiting = waiting[~fits]
    return row


class Labels:
    """The names of events with their kinds, numbered in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Kind], int] = {}

    def number(self, name: str, kind: Kind) -> int:
        """Return the number of a name of a kind."""
        return self._numbers.setdefault((name, kind), len(self._numbers))

    def numbers(self, names: list[tuple[str, Kind]], codes: Integers) -> Integers:
        """Return the number of `names[code]` for each code."""
        used = np.unique(codes)
        table = np.full(len(names), ABSENT)
        table[used] = [self.number(*names[code]) for code in used.tolist()]
        return table[codes]

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(name for name, _ in self._numbers)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kind of each."""
        return tuple(kind for _, kind in self._numbers)


MAX_EVENTS = 1_000_000
MAX_NAMES = 30_000
MAX_TEXT = 1_000_000  # characters of all names
LONGEST_NAME = 500
_BITS = 7  # of a number in each byte of LEB128, the lowest first


def packed(
    lanes: Sequence[LaneEvents],
    labels: Labels,
    places: Sequence[tuple[str, str]],
    window: tuple[int, int],
    max_bytes: int,
    max_events: int = MAX_EVENTS,
) -> Timeline:
    """Return the record of these lanes; short events become blocks where there are too many."""
    while True:
        timeline = _packed(lanes, labels, places, window, max_events)
        if len(timeline.columns) <= max_bytes or max_events < 1_000:
            return timeline
        max_events = int(max_events * 0.9 * max_bytes / len(timeline.columns))


def _packed(
    lanes: Sequence[LaneEvents],
    labels: Labels,
    places: Sequence[tuple[str, str]],
    window: tuple[int, int],
    max_events: int,
) -> Timeline:
    number = np.repeat(np.arange(len(lanes)), [len(lane) for lane in lanes])
    row = number * (1 << 20) + _joined(lanes, "row")
    begin, end = _joined(lanes, "begin") - window[0], _joined(lanes, "end") - window[0]
    block = blocks(begin, end, row, max_events)
    first = np.flatnonzero(np.diff(block, prepend=-1))
    count = np.diff(np.append(first, len(begin)))
    busy = np.add.reduceat(end - begin, first) if len(first) else end
    last = first + count - 1
    names, kinds, name = _names(labels, _joined(lanes, "label")[first], busy)
    merged_label = len(names)
    name = np.where(count > 1, merged_label, name)
    place = np.where(count > 1, 0, _joined(lanes, "place")[first] + 1)
    on_device = np.array([lane.group == "device" for lane in lanes], np.bool_)[number[first]]
    launch = _launches(lanes, block)[first]
    launch[count > 1] = ABSENT
    columns = (
        encoded(zigzag(_gaps(begin[first], end[last], row[first]))),
        encoded(end[last] - begin[first]),
        encoded(name),
        encoded(place),
        encoded(zigzag(np.diff(launch[on_device] + 1, prepend=0))),
        encoded(np.column_stack([count, busy])[count > 1].ravel()),
    )
    return Timeline(
        duration=window[1] - window[0],
        names=(*names, "shorter events"),
        kinds=(*kinds, "merged"),
        places=tuple(places),
        lanes=_lanes(lanes, row[first]),
        events=len(begin),
        columns=zlib.compress(b"".join(columns), 6),
        sizes=tuple(map(len, columns)),
    )


def _joined(lanes: Sequence[LaneEvents], column: str) -> Integers:
    return np.concatenate([np.zeros(0, np.int64), *(getattr(lane, column) for lane in lanes)])


def _gaps(begin: Integers, end: Integers, row: Integers) -> Integers:
    """Return the time from the end before in the row, from 0 for the first."""
    before = np.concatenate([[0], end[:-1]])[: len(begin)]
    before[np.flatnonzero(np.diff(row, prepend=-1))] = 0
    return cast("Integers", begin - before)


def _names(
    labels: Labels, label: Integers, time: Integers
) -> tuple[tuple[str, ...], tuple[Kind, ...], Integers]:
    """Return the names that take most time, their kinds, and that of each event."""
    names, kinds = labels.names, labels.kinds
    weight = np.bincount(label, time, minlength=len(names)) + np.bincount(
        label, minlength=len(names)
    )
    order = np.argsort(-weight, kind="stable")[:MAX_NAMES]
    order = order[weight[order] > 0]
    lengths = [min(len(names[index]), LONGEST_NAME) for index in order.tolist()]
    order = order[np.cumsum(lengths) <= MAX_TEXT] if lengths else order
    place = np.full(len(names), len(order))  # of those left out: one name for all
    place[order] = np.arange(len(order))
    kept_names = tuple(_short(names[index]) for index in order.tolist())
    return (
        (*kept_names, "another name"),
        (*(kinds[index] for index in order), "other"),
        place[label],
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 80]}…{name[-80:]}"


def _launches(lanes: Sequence[LaneEvents], block: Rows) -> Rows:
    """Return for each event the block of its launch, ABSENT where none is drawn."""
    source, launch = _joined(lanes, "source"), _joined(lanes, "launch")
    drawn = np.full(max(source.max(initial=0), launch.max(initial=0)) + 2, ABSENT)
    recorded = source != ABSENT
    drawn[source[recorded]] = block[recorded]
    return cast("Integers", drawn[launch])  # ABSENT is the place after the last, where none is


def _lanes(lanes: Sequence[LaneEvents], row: Integers) -> tuple[Lane, ...]:
    per_row, counts = np.unique(row, return_counts=True)
    lane_of_row = per_row >> 20
    return tuple(
        Lane(
            name=_short(lane.name),
            group=lane.group,
            rows=tuple(counts[lane_of_row == index].tolist()),
            left_out=lane.left_out,
        )
        for index, lane in enumerate(lanes)
    )


def blocks(begin: Integers, end: Integers, row: Integers, max_blocks: int) -> Rows:
    """Return the number of the block that each event is in; long events have one of their own.

    The events are by row (numbered over all lanes) and begin. The time is cut into equal parts;
    neighbours in a row that begin in the same part and are shorter than a part share a block. The
    parts are as short as they can be with `max_blocks` (to an eighth), or as one part for the whole
    time gives.
    """
    count = len(begin)
    if count <= max_blocks:
        return np.arange(count)
    new_row = np.diff(row) != 0
    last = max(int(end.max()), 1).bit_length() + 1
    low, high = 0, 8 * last  # exponents of two, in eighths
    while high - low > 1:
        middle = (low + high) // 2
        if _numbered(begin, end, new_row, middle)[-1] < max_blocks:
            high = middle
        else:
            low = middle
    return _numbered(begin, end, new_row, high)


def _numbered(begin: Integers, end: Integers, new_row: np.ndarray, eighths: int) -> Rows:
    width = max(int(2 ** (eighths / 8)), 1)
    is_long = end - begin >= width
    part = begin // width
    separate = (np.diff(part) != 0) | new_row | is_long[1:] | is_long[:-1]
    return np.cumsum(np.concatenate([[False], separate]))


def encoded(values: Integers) -> bytes:
    """Return numbers that are not negative as LEB128."""
    numbers = values.astype(np.uint64)
    limits = np.array([1 << (_BITS * count) for count in range(1, 10)], np.uint64)
    length = np.searchsorted(limits, numbers, side="right") + 1
    position = np.cumsum(length) - length
    data = np.zeros(int(length.sum()), np.uint8)
    for number in range(int(length.max(initial=0))):
        longer = np.flatnonzero(length > number)
        septet = (numbers[longer] >> np.uint64(_BITS * number)) & np.uint64(0x7F)
        continued = (length[longer] > number + 1).astype(np.uint64) << np.uint64(_BITS)
        data[position[longer] + number] = septet | continued
    return data.tobytes()


def zigzag(values: Integers) -> Integers:
    """Return signed numbers as others that are not negative: 0, −1, 1, −2 become 0, 1, 2, 3."""
    signed = values.astype(np.int64)
    return (signed << 1) ^ (signed >> 63)


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
