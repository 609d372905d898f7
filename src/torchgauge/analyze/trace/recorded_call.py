"""One recorded call of an operator, by name and number, with its arguments and times."""

from __future__ import annotations

import re

import numpy as np

from torchgauge.analyze.timeline.attribution import Spans
from torchgauge.analyze.timeline.launches import launched
from torchgauge.errors import InputError
from torchgauge.records.timeline.node import base_name
from torchgauge.records.trace.events import Events
from torchgauge.records.trace.replay import RecordedCall
from torchgauge.similar import did_you_mean, similar

_CALL = re.compile(r"(?P<name>\w+::[\w.]+)(?:#(?P<number>[1-9]\d{0,8}))?")


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
