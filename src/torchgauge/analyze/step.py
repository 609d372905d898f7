"""Whether the latency stepped up or down while it was measured: the cumulative sum of signs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.autocorrelation import cautious
from torchgauge.analyze.trend import noise_tau

FEWEST = 100
CRITICAL = 1.628
"""What the largest excursion of a Brownian bridge exceeds in 1 % (Kolmogorov)."""


class Step(NamedTuple):
    """The first sample after the step, and the change there as a fraction."""

    at: int
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
    if x.size < FEWEST or np.ptp(x) == 0:
        return None
    signs = np.sign(x - np.median(x))
    sums = np.abs(np.cumsum(signs - signs.mean()))
    at = int(np.argmax(sums)) + 1
    scale = float(signs.std()) * math.sqrt(x.size * cautious(noise_tau(x), x.size))
    before, after = float(np.median(x[:at])), float(np.median(x[at:])) if at < x.size else 0.0
    if scale == 0 or sums[at - 1] < CRITICAL * scale or before <= 0 or at == x.size:
        return None
    return Step(at, after / before - 1)
