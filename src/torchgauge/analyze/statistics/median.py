"""The median's confidence interval from order statistics, under autocorrelation."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.statistics.autocorrelation import autocorrelation_time, cautious
from torchgauge.records.record import Interval

Z = 1.959963984540054
MIN_INDEPENDENT_SAMPLES = 6
"""Below six independent samples even the whole range covers the median in under 95 %."""


def median_interval(samples: npt.ArrayLike, tau: float | None = None) -> Interval | None:
    """Return the 95 % interval between ranks (n+1)/2 ± z·sqrt(n·τ'/4), in the samples' unit.

    `tau` is the autocorrelation time (found here where not given). None where n/τ < 6: no finite
    two-sided interval exists. The ranks end at the smallest and the largest sample.

    Source: Conover, "Practical Nonparametric Statistics", with n replaced by n/τ'.
    """
    x = np.asarray(samples, dtype=np.float64)
    if tau is None:
        tau = autocorrelation_time(x)
    if x.size / tau < MIN_INDEPENDENT_SAMPLES:
        return None
    middle = (x.size + 1) / 2
    reach = Z * math.sqrt(x.size * cautious(tau, x.size) / 4)
    # Between two samples the line is taken: whole ranks, rounded outwards, covered up to 98 %.
    low, high = np.interp((middle - reach, middle + reach), np.arange(1, x.size + 1), np.sort(x))
    return Interval(low=float(low), high=float(high), scope="process")
