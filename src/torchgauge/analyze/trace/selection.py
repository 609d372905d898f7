"""A part of a recorded trace: which of its events are in a range of time, a step, a layer.

Every event is in a part or not, by one moment (see `recording`), so parts that share no moment
share no event. What began before a range and still runs in it is not in it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from torchgauge import units
from torchgauge.analyze.timeline.attribution import NONE
from torchgauge.analyze.trace.recording import Recording, window
from torchgauge.errors import InputError, option_invalid
from torchgauge.records.trace.events import ABSENT, Coded, Codes, Events, Integers, Rows
from torchgauge.similar import similar

_MAX_SUGGESTIONS = 8
LONGEST = 1e9  # seconds
_COLUMNS = ("start", "duration", "name", "category", "thread")
_SPARSE = ("operators", "launches", "device_work", "collectives", "recorded_waits", "python")


@dataclasses.dataclass(frozen=True)
class Part:
    """The part of a trace to select: an event is in it if all the bounds that are set hold.

    `begin` and `end` in seconds from the window's begin, the end not in it. `step` is the number of
    a marked step. `layer` is a layer's path: its calls, forward and backward, with all inside them.
    """

    begin: float | None = None
    end: float | None = None
    step: int | None = None
    layer: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing bounds it."""
        return self == Part()

    def __str__(self) -> str:
        """Return it as text, "step 7" or "from 10 ms until 25 ms"; empty where it is all."""
        bounds = (
            "" if self.step is None else f"step {self.step}",
            "" if self.begin is None else f"from {units.time(self.begin)}",
            "" if self.end is None else f"until {units.time(self.end)}",
            "" if self.layer is None else f"in {self.layer}",
        )
        return " ".join(filter(None, bounds))

    def __post_init__(self) -> None:
        """Raise InputError `option-invalid` for times that no trace has."""
        for time in (self.begin, self.end):
            if time is not None and not abs(time) <= LONGEST:
                raise option_invalid(
                    f"{time:.6g} s is not a time of the trace.",
                    "Choose a moment before its end.",
                    cause="It counts from the trace's begin.",
                )


@dataclasses.dataclass(frozen=True, eq=False)
class Selection:
    """Which spans, allocations and ends of arrows are kept, as masks in the order of the events.

    An arrow is kept where all of its ends are, of which it has two at least: each where the span is
    that begins there. `is_whole`: the part is all of the recording.
    """

    spans: np.ndarray
    memory: np.ndarray
    flows: np.ndarray
    is_whole: bool
    _filter: _PartFilter

    def moments(self, time: Integers, thread: Codes) -> np.ndarray:
        """Return the mask of the moments (ns, on these threads of the events) in the part."""
        return self._filter.moments(time, thread)


def select(recording: Recording, part: Part) -> Selection:
    """Return the events of the recording that are in the part.

    Raises InputError `step-unknown`, `layer-unknown`, and `part-empty` where nothing is in it.
    """
    part_filter = _PartFilter(recording, part)
    spans = part_filter.mask(recording.time, recording.span)
    if not spans.any():
        raise InputError(
            "The selected part of the trace is empty.",
            id="part-empty",
            cause=f"{len(spans):,} events were recorded in {_seconds(recording):.6g} s.",
            remedy="Choose another range, step or layer.",
        )
    memory, flows = recording.events.memory, recording.events.flows
    moments = part_filter.moments(flows.time, flows.thread)
    arrows = moments if part.is_whole else _arrows(recording, spans, moments)
    allocations = part_filter.moments(memory.time, memory.thread)
    return Selection(spans, allocations, arrows, part.is_whole, part_filter)


def selected_events(events: Events, selection: Selection) -> Events:
    """Return the selected events as a trace of their own."""
    spans, row = selection.spans, np.cumsum(selection.spans) - 1
    sparse = {name: _rows_in(getattr(events, name), spans, row) for name in _SPARSE}
    columns = {name: _selected_entries(getattr(events, name), spans) for name in _COLUMNS}
    memory = {name: column[selection.memory] for name, column in vars(events.memory).items()}
    arrows = selection.flows
    flows = {name: _selected_entries(column, arrows) for name, column in vars(events.flows).items()}
    return dataclasses.replace(
        events,
        **columns,
        **sparse,
        memory=type(events.memory)(**memory),
        flows=type(events.flows)(**flows),
    )


def waits_for_others(recording: Recording, selection: Selection) -> bool:
    """Whether selected work waited on its stream for work that is not selected."""
    work, table, duration = recording.work, recording.events.device_work, recording.events.duration
    begin, chosen = recording.events.start[work.row], selection.spans[work.row]
    end = begin + duration[work.row]
    stream = np.stack([np.append(table.device, ABSENT), np.append(table.stream, ABSENT)])
    stream = np.unique(stream[:, work.entry], axis=1, return_inverse=True)[1].reshape(-1)
    for number in np.unique(stream[chosen]).tolist():
        first = np.flatnonzero(chosen & (stream == number))
        first = first[np.argmin(begin[first])]
        is_before = ~chosen & (stream == number) & (begin <= begin[first])
        if (end[is_before] > recording.time[work.row[first]]).any():
            return True
    return False


def _rows_in(table: Any, spans: np.ndarray, row: Rows) -> Any:
    """Return the entries of a table whose spans are selected, with their new places."""
    mask = spans[table.row]
    columns = {name: _selected_entries(column, mask) for name, column in vars(table).items()}
    return type(table)(**columns | {"row": row[columns["row"]]})


def _selected_entries(column: Any, mask: np.ndarray) -> Any:
    return column.take(mask) if isinstance(column, Coded) else column[mask]


def _seconds(recording: Recording) -> float:
    begin, end = window(recording.events)
    return (end - begin) * 1e-9


class _PartFilter:
    """Tests moments, and the host's spans around them, against a part."""

    def __init__(self, recording: Recording, part: Part) -> None:
        self._recording = recording
        self._part = part
        self._origin = window(recording.events)[0]
        self._layers = None if part.layer is None else _layers(recording, part.layer)
        if part.step is not None:
            _check_step(recording, part.step)

    def mask(self, time: Integers, span: Rows) -> np.ndarray:
        """Return the mask of what is in the part, from its times and the spans around it."""
        part, selected = self._part, np.ones(len(time), np.bool_)
        if part.begin is not None:
            selected &= time >= self._origin + round(part.begin * 1e9)
        if part.end is not None:
            selected &= time < self._origin + round(part.end * 1e9)
        if part.step is not None:
            selected &= self._recording.step(time) == part.step
        if self._layers is not None:
            selected &= np.isin(self._recording.layer(span), self._layers)
        return selected

    def moments(self, time: Integers, thread: Codes) -> np.ndarray:
        """Return the mask of the moments of the host that are in the part."""
        around = np.full(len(time), NONE)
        if self._layers is not None:
            around = self._recording.around(time, thread)
        return self.mask(time, around)


def _layers(recording: Recording, path: str) -> list[int]:
    """Return the numbers of the layers at the path, and of all that are called in them."""
    if not len(recording.modules):
        raise InputError(
            "The trace has no layers.",
            id="layer-unknown",
            cause="It was recorded without stacks and without torchgauge.",
            remedy="Choose a range of time or a step.",
        )
    layers = recording.modules.tree.layers
    within = [number for number, layer in enumerate(layers) if path == (layer.path or layer.name)]
    if not within:
        names = sorted({layer.path or layer.name for layer in layers})
        near = similar(path, names, limit=_MAX_SUGGESTIONS) or names[:_MAX_SUGGESTIONS]
        raise InputError(
            f"The trace has no layer '{path}'.",
            id="layer-unknown",
            cause=f"It has {len(names):,}, such as {', '.join(near)}.",
            remedy="Choose one of the tree's: `torchgauge trace FILE --depth 9`.",
        )
    for number, layer in enumerate(layers):  # a parent comes before its children
        if layer.parent in within and number not in within:
            within.append(number)
    return within


def _check_step(recording: Recording, step: int) -> None:
    steps = sorted(set(recording.step(recording.time[recording.spans.row]).tolist()) - {ABSENT})
    if step not in steps:
        raise InputError(
            f"The trace has no step {step}.",
            id="step-unknown",
            cause=f"It marks {', '.join(map(str, steps))}." if steps else "It marks none.",
            remedy="Choose one of these." if steps else "Choose a range of time.",
        )


def _arrows(recording: Recording, spans: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Return the mask of selected arrow ends; `moments` decides for ends at no span."""
    events, flows = recording.events, recording.events.flows
    selected = moments.copy()
    for thread in np.unique(flows.thread).tolist():
        thread_flows, thread_spans = flows.thread == thread, events.thread.codes == thread
        ends, begins = flows.time[thread_flows], events.start[thread_spans]
        selected[thread_flows] = np.isin(ends, begins[spans[thread_spans]]) | (
            selected[thread_flows] & ~np.isin(ends, begins)
        )
    number = np.unique(flows.id, return_inverse=True)[1]  # however large an id is
    arrow = number * (len(flows.category.values) + 1) + flows.category.codes + 1
    ends = [np.bincount(arrow, flows.begins == begins) for begins in (False, True)]
    complete = (ends[0] > 0) & (ends[1] > 0)  # files have arrows with one end
    selected[(np.bincount(arrow, ~selected)[arrow] > 0) | ~complete[arrow]] = False
    return selected
