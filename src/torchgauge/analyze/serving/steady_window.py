"""The steady window of a level: its requests less those of warm-up and drain."""

from __future__ import annotations

import math

import numpy as np

from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.records.serving.level import Scenario

WARM_UP = 0.1
DRAIN = 0.1


def steady_window(
    times: RequestTimes, duration: float, scenario: Scenario, *, interrupted: bool = False
) -> tuple[float, float]:
    """Return begin and end of the window in seconds from the level's begin.

    The first tenth is warm-up: the queue begins empty, caches and connections cold. The drain is
    as long as nine of ten requests took, a tenth of the duration at most: what was scheduled in it
    was answered under less load. After an interruption it is as long as the longest request took,
    since slow requests lack their answer. Requests that were all due at once are not cut.

    Args:
        times: Those of all requests.
        duration: Seconds for which requests were scheduled.
        scenario: "offline": until the last answer.
        interrupted: Whether `duration` ended before its time.
    """
    answered = times.latency[np.isfinite(times.latency)]
    if scenario == "offline":
        last = times.last[np.isfinite(times.last)]
        return 0.0, float(last.max()) if last.size else duration
    if answered.size == 0:
        return WARM_UP * duration, duration
    if interrupted:
        drain = min(float(answered.max()), duration / 2)
    else:
        rank = math.ceil(0.9 * answered.size) - 1
        drain = min(float(np.partition(answered, rank)[rank]), DRAIN * duration)
    return WARM_UP * duration, duration - drain
