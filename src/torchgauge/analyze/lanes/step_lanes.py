"""The timeline of a single step of a live recording, small enough to be saved with its record."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from torchgauge.analyze.lanes.recorded_lanes import Recorded, timeline
from torchgauge.analyze.timeline.attribution import Spans
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.launches import Launched, launched
from torchgauge.analyze.timeline.steps import marked
from torchgauge.analyze.trace.device_work import device_activities
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.records.timeline.timeline import Timeline
from torchgauge.records.trace.events import Events

MAX_EVENTS = 20_000
MAX_BYTES = 64_000


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
    return timeline(recorded, max_bytes=MAX_BYTES, max_events=MAX_EVENTS)


def _rows_of(events: Events, work: Launched, begin: int, end: int) -> np.ndarray:
    """Return which events belong to the step, as a mask."""
    time = events.start.copy()
    begun = work.call[work.launched]
    time[work.row[work.launched]] = events.start[begun]
    return np.asarray((time >= begin) & (time < end))
