"""Whether the latency stepped up or down while it was measured: the cumulative sum of signs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.statistics.autocorrelation import cautious
from torchgauge.analyze.statistics.detrended_noise import noise_tau

MIN_SAMPLES = 100
CRITICAL = 1.628
"""What the largest excursion of a Brownian bridge exceeds in 1 % (Kolmogorov)."""


class Step(NamedTuple):
    """The first sample after the step, and the change there as a fraction."""

    sample_index: int
    change: float


def find_step(samples: npt.ArrayLike) -> Step | None:
    """Return the step in the steady samples (seconds, in order), or None where there is none.

    S_k is the sum over the first k samples of the signs of x − median. Without a step
    max|S_k|/sqrt(n·τ') is that of a Brownian bridge; τ' is about the trend. It sees what a rank
    correlation over batches does not: a step late in the run, and one in correlated noise that is
    too short for batches of 5τ. None below 100 samples.

    Source: Ploberger & Krämer, "The CUSUM test with OLS residuals", Econometrica 60 (1992), on
    signs.
    """
    x = np.asarray(samples, dtype=np.float64)
    if x.size < MIN_SAMPLES or np.ptp(x) == 0:
        return None
    signs = np.sign(x - np.median(x))
    sums = np.abs(np.cumsum(signs - signs.mean()))
    sample_index = int(np.argmax(sums)) + 1
    scale = float(signs.std()) * math.sqrt(x.size * cautious(noise_tau(x), x.size))
    if sample_index == x.size or scale == 0 or sums[sample_index - 1] < CRITICAL * scale:
        return None
    before, after = float(np.median(x[:sample_index])), float(np.median(x[sample_index:]))
    if before <= 0:
        return None
    return Step(sample_index, after / before - 1)
