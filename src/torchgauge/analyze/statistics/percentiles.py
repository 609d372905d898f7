"""Percentiles and their intervals from a limited number of samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torchgauge.errors import option_invalid
from torchgauge.imports import imported
from torchgauge.records.record import Interval

if TYPE_CHECKING:
    import numpy.typing as npt

PERCENTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
"""The percentiles beside the median (p50), which has its own estimator."""

_TAIL = 0.025


def samples_needed(fraction: float | None) -> int:
    """Return how many independent samples a finite two-sided 95 % interval needs: 368 for p99.

    All samples lie on one side of the percentile with probability fraction^n, which must not
    exceed 2.5 % on either side. No percentile (None) needs none. Raises InputError
    `option-invalid`.
    """
    if fraction is None:
        return 0
    if not 0 < fraction < 1:
        raise option_invalid(
            f"percentile = {fraction} is not possible.",
            "Give percentile as in 0.99.",
            cause="It is the share of the calls that are as fast or faster, between 0 and 1.",
        )
    return math.ceil(math.log(_TAIL) / math.log(max(fraction, 1 - fraction)))


def percentile_interval(samples: npt.ArrayLike, fraction: float, tau: float) -> Interval | None:
    """Return the 95 % interval of a percentile in the samples' unit; None where n/τ is too small.

    Ranks come from the binomial distribution of the number of samples below the percentile, with
    n/τ independent samples; each stands for τ of the real ones.

    Source: David & Nagaraja, "Order Statistics", section 7.1.
    """
    import numpy as np  # the command line reads limits before it may take a second

    x = np.sort(np.asarray(samples, dtype=np.float64))
    effective = int(x.size / tau)
    if effective < samples_needed(fraction):
        return None
    low, high = _ranks(effective, fraction)
    samples_per_rank = x.size / effective
    first = math.floor((low - 1) * samples_per_rank)
    last = x.size - 1 - math.floor((effective - high) * samples_per_rank)
    return Interval(low=float(x[first]), high=float(x[last]), scope="process")


def _ranks(n: int, fraction: float) -> tuple[int, int]:
    import numpy as np

    bdtr = imported("scipy.special").bdtr

    below = bdtr(np.arange(n + 1), n, fraction)
    low = int(np.searchsorted(below, _TAIL))
    high = int(np.searchsorted(below, 1 - _TAIL)) + 1
    return low, high
