"""The median's confidence interval from order statistics, under autocorrelation."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.autocorrelation import autocorrelation_time, cautious
from torchgauge.model.record import Interval

Z = 1.959963984540054
FEWEST = 6
"""Below six independent samples even the whole range covers the median in under 95 %."""


def median_interval(samples: npt.ArrayLike, tau: float | None = None) -> Interval | None:
    """Return the 95 % interval between the samples at ranks n/2 ± z·sqrt(n·τ'/4), in their unit.

    `tau` is the autocorrelation time (found here where not given). None where n/τ < 6: no finite
    two-sided interval exists. The ranks are cut at the smallest and the largest sample.

    Source: Conover, "Practical Nonparametric Statistics", with n replaced by n/τ'.
    """
    x = np.asarray(samples, dtype=np.float64)
    if tau is None:
        tau = autocorrelation_time(x)
    if x.size / tau < FEWEST:
        return None
    reach = Z * math.sqrt(x.size * cautious(tau, x.size) / 4)
    low = max(math.floor(x.size / 2 - reach), 1)
    high = x.size + 1 - low
    ordered = np.partition(x, (low - 1, high - 1))
    return Interval(low=float(ordered[low - 1]), high=float(ordered[high - 1]))
