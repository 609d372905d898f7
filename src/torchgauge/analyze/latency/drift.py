"""Whether the latency drifted while it was measured: Theil–Sen and Kendall on batch medians."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.statistics.detrended_noise import BATCHES, batch_medians, noise_tau

BATCH_IN_TAU = 5
SIGNIFICANCE = 0.01


class Drift(NamedTuple):
    """The change over the whole run as a fraction of the median, and Kendall's p."""

    change: float
    p: float

    @property
    def significant(self) -> bool:
        """Whether p < .01."""
        return self.p < SIGNIFICANCE


def find_drift(samples: npt.ArrayLike) -> Drift | None:
    """Return the trend of the steady samples (seconds, in order), or None if insignificant.

    None where a batch (1/20 of the samples) is shorter than 5τ, τ about the trend: neighbouring
    batch medians would move together by noise alone.

    Source: Theil (1950), Sen (1968), Kendall (1938).
    """
    x = np.asarray(samples, dtype=np.float64)
    middle = float(np.median(x)) if x.size else 0.0
    if x.size < BATCHES * BATCH_IN_TAU or middle <= 0:
        return None
    medians = batch_medians(x)
    if np.ptp(medians) == 0:
        return Drift(0.0, 1.0)
    if x.size < BATCHES * BATCH_IN_TAU * noise_tau(x):
        return None
    earlier, later = np.triu_indices(BATCHES, 1)
    steps = medians[later] - medians[earlier]
    slope = float(np.median(steps / (later - earlier)))
    return Drift(slope * (BATCHES - 1) / middle, _kendall_p(float(np.sign(steps).sum()), BATCHES))


def _kendall_p(rising: float, count: int) -> float:
    """Return the exact two-sided p of so many more rising pairs of `count` values than falling.

    The k-th of values in random order falls below 0 … k - 1 of those before it, each as likely.
    scipy.stats has this as well; to import it takes as long as a short run.
    """
    falling = np.ones(1)
    for before in range(1, count):
        falling = np.convolve(falling, np.full(before + 1, 1 / (before + 1)))
    difference = falling.size - 1 - 2 * np.arange(falling.size)
    return min(1.0, float(falling[np.abs(difference) >= abs(rising)].sum()))
