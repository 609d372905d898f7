"""The times of a level's requests as a page draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.records.serving.level import Level

Times = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def answered(times: RequestTimes) -> Flags:
    """Return which requests have a latency: they were answered as they should be."""
    return np.isfinite(times.latency)


def microseconds(seconds: Times) -> list[int]:
    """Return whole microseconds, the unit of the page's columns of requests."""
    rounded: list[int] = np.rint(np.maximum(seconds, 0.0) * 1e6).astype(np.int64).tolist()
    return rounded


def nanoseconds(seconds: Sequence[float] | Times) -> list[int | None]:
    """Return whole nanoseconds; None where it is unknown."""
    return [round(float(value) * 1e9) if np.isfinite(value) else None for value in seconds]


def stretches(level: Level) -> list[dict[str, Any]]:
    """Return the times that are in no figure, in nanoseconds: warm-up, and what came after."""
    begin, end = (round(second * 1e9) for second in level.window)
    last = round(max(level.duration, max(level.requests.scheduled, default=0.0)) * 1e9)
    parts = [(0, begin, "warm-up"), (end, last, "after the window")]
    return [
        {"from": first, "to": final, "label": label}
        for first, final, label in parts
        if final > first
    ]
