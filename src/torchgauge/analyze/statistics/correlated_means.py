"""The mean of samples that resemble their neighbours, with its interval."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.statistics.autocorrelation import initial_positive_sequence
from torchgauge.analyze.statistics.correlated_percentiles import (
    CorrelatedSamples,
    enlarged,
    share_interval,
)
from torchgauge.imports import imported

# Independent samples below which neither the mean's error nor τ is known.
MIN_INDEPENDENT = 100
# A run that saw too few long queues shows too low a mean and too small an error, so that the upper
# end must reach further (benchmarks/load_coverage.py).
LOWER_TAIL = 0.025
UPPER_TAIL = 0.00001


class MeanFigure(NamedTuple):
    """A mean with its 95 % interval; the ends are None where `needed` samples would give one."""

    value: float
    low: float | None
    high: float | None
    needed: int


def correlated_mean(samples: CorrelatedSamples) -> MeanFigure:
    """Return the mean of finite samples less and plus t·s·sqrt(τ′/n), of n/τ′ − 1 degrees.

    τ is that of the values, or of [x > level] where that is larger: rare long queues hide how long
    the others last.
    """
    x = samples.samples
    tau = max(initial_positive_sequence(x), samples.longest_time(0.99))
    tau = enlarged(tau, x.size)
    value = float(x.mean())
    needed = math.ceil(MIN_INDEPENDENT * tau)
    if x.size < needed:
        return MeanFigure(value, None, None, needed)
    effective = x.size / tau
    student = imported("scipy.special").stdtrit
    error = float(x.std(ddof=1)) / math.sqrt(effective)
    low = value + float(student(effective - 1, LOWER_TAIL)) * error
    high = value - float(student(effective - 1, UPPER_TAIL)) * error
    return MeanFigure(value, low, high, needed)


def correlated_share(events: npt.ArrayLike) -> tuple[float, float, float]:
    """Return the share of true values among booleans in the order of time, low and high.

    The 95 % interval is Clopper and Pearson's at n/τ′; it exists for any number of values.
    """
    x = np.asarray(events, dtype=np.float64)
    share = float(x.mean())
    effective = max(x.size / enlarged(initial_positive_sequence(x), x.size), 1.0)
    return (share, *share_interval(share, effective))
