"""The requests of a level as arrays: when each was due and sent, and how long it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.records.serving.level import Level

Times = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class RequestTimes(NamedTuple):
    """Seconds of each request in the order of the schedule; NaN is unknown.

    Attributes:
        index: Its index in the record.
        scheduled: When it was due.
        sent: When it was sent.
        first: When its first content came.
        last: When its answer was whole.
        is_done: Whether it was answered well: figures of latency are of these.
        in_window: Whether it was due in the steady window.
    """

    index: npt.NDArray[np.int64]
    scheduled: Times
    sent: Times
    first: Times
    last: Times
    is_done: Flags
    in_window: Flags

    @property
    def latency(self) -> Times:
        """Seconds from scheduled to last."""
        return self.last - self.scheduled

    @property
    def service(self) -> Times:
        """Seconds from sent to last."""
        return self.last - self.sent

    @property
    def ttft(self) -> Times:
        """Seconds from scheduled to the first content."""
        return self.first - self.scheduled

    @property
    def steady(self) -> Flags:
        """Whether figures are of it: answered well, and due in the steady window."""
        return self.is_done & self.in_window


def request_times(level: Level) -> RequestTimes:
    """Return the requests of a level as arrays."""
    requests = level.requests
    scheduled = _column(requests.scheduled, len(requests))
    order = np.argsort(scheduled, kind="stable")
    begin, end = level.window
    last = _column(requests.last, len(requests))[order]
    fates = np.array([fate == "done" for fate in requests.fate], bool)
    is_done = fates[order] if len(fates) == len(order) else np.zeros(len(order), bool)
    return RequestTimes(
        index=order,
        scheduled=scheduled[order],
        sent=_column(requests.sent, len(requests))[order],
        first=_column(requests.first, len(requests))[order],
        last=last,
        is_done=is_done & np.isfinite(last),
        in_window=(begin <= scheduled[order]) & (scheduled[order] <= end),
    )


def _column(values: Sequence[float | None], count: int) -> Times:
    if len(values) != count:  # nothing fills the column
        return np.full(count, np.nan)
    return np.array(values, dtype=np.float64)


def microseconds(seconds: Times) -> list[int]:
    """Return whole microseconds, the unit of the page's columns of requests."""
    whole: list[int] = np.rint(np.maximum(seconds, 0.0) * 1e6).astype(np.int64).tolist()
    return whole


def nanoseconds(seconds: Sequence[float] | Times) -> list[int | None]:
    """Return whole nanoseconds; None where it is unknown."""
    return [None if np.isnan(value) else round(float(value) * 1e9) for value in seconds]


def stretches(level: Level) -> list[dict[str, Any]]:
    """Return the times that are in no figure, in nanoseconds: warm-up, and what came after."""
    begin, end = (round(second * 1e9) for second in level.window)
    last = round(max([level.duration, *level.requests.scheduled[-1:]]) * 1e9)
    parts = [
        {"from": 0, "to": begin, "label": "warm-up"},
        {"from": end, "to": last, "label": "after the window"},
    ]
    return [part for part in parts if part["to"] > part["from"]]
