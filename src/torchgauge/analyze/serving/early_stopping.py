"""MLPerf's early stopping: what a run of LoadGen's would report of these latencies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from torchgauge.imports import imported
from torchgauge.records.serving.level import EarlyStopping, Scenario

CONFIDENCE = 0.99
# The percentile of each scenario in MLPerf's rules.
FRACTIONS: dict[Scenario, float] = {"single-stream": 0.90, "multi-stream": 0.99, "server": 0.99}


def queries_needed(fraction: float, over: int) -> int:
    """Return how many queries show a percentile where `over` of them exceed the limit.

    The smallest h + t with I_p(h, t + 1) ≤ 1 − 0.99 for t = `over`: so few of h + t queries
    exceed the limit in one of a hundred runs at most, if a share 1 − p of all does. Valid for
    independent queries only.

    Source: MLPerf Inference rules, "Early stopping".
    """
    betainc = imported("scipy.special").betainc
    low, high = 0, 1
    while betainc(high, over + 1, fraction) > 1 - CONFIDENCE:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if betainc(middle, over + 1, fraction) > 1 - CONFIDENCE:
            low = middle
        else:
            high = middle
    return high + over


def queries_that_may_exceed(fraction: float, queries: int) -> int | None:
    """Return the most of `queries` that may exceed the limit; None where there are too few."""
    if queries < queries_needed(fraction, 0):
        return None
    low, high = 0, queries
    while high - low > 1:
        middle = (low + high) // 2
        if queries_needed(fraction, middle) <= queries:
            low = middle
        else:
            high = middle
    return low


def early_stopping(
    latencies: npt.ArrayLike, scenario: Scenario, limit: float | None = None
) -> EarlyStopping | None:
    """Return the verdict on latencies of queries; None offline, where the rule does not apply.

    Single- and multi-stream have a conservative estimate of the percentile: with t queries that may
    exceed it, the t-th largest latency, for t ≥ 1. The server scenario is judged against `limit`,
    passed where there are as many queries as the number over it needs; without one it has the
    estimate too.

    Args:
        latencies: Seconds of each query, infinite for one that was not answered.
        scenario: Which percentile.
        limit: Seconds.
    """
    fraction = FRACTIONS.get(scenario)
    if fraction is None:
        return None
    ascending = np.sort(np.asarray(latencies, dtype=np.float64))
    count = ascending.size
    if limit is not None and scenario == "server":
        over = int((ascending > limit).sum())
        needed = queries_needed(fraction, over)
        return EarlyStopping(
            fraction=fraction, queries=count, needed=needed, over=over, passed=count >= needed
        )
    allowed = queries_that_may_exceed(fraction, count)
    if not allowed:
        return EarlyStopping(
            fraction=fraction, queries=count, needed=queries_needed(fraction, 1), passed=False
        )
    estimate = float(ascending[count - allowed])
    return EarlyStopping(
        fraction=fraction,
        queries=count,
        needed=queries_needed(fraction, allowed),
        over=allowed,
        estimate=estimate if np.isfinite(estimate) else None,
        passed=bool(np.isfinite(estimate)),
    )


def longest_together(
    scheduled: npt.NDArray[np.float64], latencies: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the latency of each query: the longest of the requests that were due together."""
    if scheduled.size == 0:
        return latencies
    begins = np.flatnonzero(np.diff(scheduled, prepend=-np.inf))
    return np.maximum.reduceat(latencies, begins)
