"""Shares of a step and differences between ranks, with intervals that allow for like neighbours."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.statistics.autocorrelation import cautious, initial_positive_sequence
from torchgauge.imports import imported
from torchgauge.records.record import Interval
from torchgauge.records.timeline.step_times import StepKind

Shares = dict[StepKind, tuple[float, Interval | None]]
_Floats = npt.NDArray[np.float64]

# Independent steps below which no interval is given.
MIN_INDEPENDENT = 6
TAIL = 0.025


def share_of(part: npt.ArrayLike, steps: npt.ArrayLike) -> tuple[float, Interval | None]:
    """Return the share of all steps' time that a part has, with its 95 % interval.

    It is the ratio of two sums: rare long delays count as much as they take. Its error is that of
    the mean of part − share·step, of n/τ′ − 1 degrees of freedom.

    Source: Cochran, "Sampling Techniques", section 2.11 (ratio estimates), with n replaced by n/τ′.
    """
    x, duration = np.asarray(part, np.float64), np.asarray(steps, np.float64)
    total = float(duration.sum())
    if not total:
        return 0.0, None
    share = float(x.sum()) / total
    reach = _reach(x - share * duration)
    if reach is None:
        return share, None
    reach /= float(duration.mean())
    return share, Interval(
        low=max(share - reach, 0.0), high=min(share + reach, 1.0), scope="process"
    )


def mean_of(values: npt.ArrayLike, tail: float = TAIL) -> tuple[float, Interval | None]:
    """Return the mean of a series with its interval; None of too few independent values.

    `tail` is the probability that it is beyond one of the ends.
    """
    x = np.asarray(values, np.float64)
    mean = float(x.mean())
    reach = _reach(x - mean, tail)
    return mean, None if reach is None else Interval(
        low=mean - reach, high=mean + reach, scope="process"
    )


def _reach(deviations: _Floats, tail: float = TAIL) -> float | None:
    """Return half the width of the interval of a mean, from its samples' deviations."""
    n = len(deviations)
    tau = initial_positive_sequence(deviations) if n else 1.0
    if n / tau < MIN_INDEPENDENT:
        return None
    effective = n / cautious(tau, n)
    student = -float(imported("scipy.special").stdtrit(max(effective - 1, 1.0), tail))
    return student * float(deviations.std(ddof=1)) / math.sqrt(effective)
