"""Which requests are within all goals: goodput counts those."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.records.serving.goal import Goal


def within_goals(times: RequestTimes, goals: Iterable[Goal]) -> npt.NDArray[np.bool_]:
    """Return which requests were answered within the limit of every goal.

    A goal's percentile is one over requests, so it says nothing of a single one, except of ITL: at
    least that share of a request's own gaps must be within the limit; for `mean` their mean. A
    request without the time that a goal limits (one token has no TPOT) cannot miss it.
    """
    within = times.done.copy()
    for goal in goals:
        if goal.metric == "errors":
            continue
        if goal.metric == "itl":
            within &= _gaps_within(times, goal)
        else:
            own: npt.NDArray[np.float64] = getattr(times, goal.metric)
            within &= np.isnan(own) | (own < goal.limit)
    return within


def _gaps_within(times: RequestTimes, goal: Goal) -> npt.NDArray[np.bool_]:
    requests = times.scheduled.size
    counts = np.bincount(times.gap_owners, minlength=requests)
    if goal.fraction is None:
        sums = np.bincount(times.gap_owners, weights=times.gaps, minlength=requests)
        return sums <= goal.limit * counts
    short = np.bincount(times.gap_owners, weights=times.gaps < goal.limit, minlength=requests)
    return short >= goal.fraction * counts - 1e-9
