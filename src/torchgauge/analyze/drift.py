"""Whether the latency moved while it was measured: Theil–Sen and Kendall on batch medians."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torchgauge.analyze.autocorrelation import initial_positive_sequence

if TYPE_CHECKING:
    import numpy.typing as npt

BATCHES = 20
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
    """Return the trend of the steady samples (seconds, in order), or None where none can be told.

    None where a batch (1/20 of the samples) is shorter than 5τ: neighbouring batch medians
    would then move together by noise alone. That τ is taken about the best-fitting step or line,
    because a drift raises the plain τ and would excuse itself.

    Source: Theil (1950), Sen (1968), Kendall (1938).
    """
    x = np.asarray(samples, dtype=np.float64)
    middle = float(np.median(x)) if x.size else 0.0
    if x.size < BATCHES * BATCH_IN_TAU or middle <= 0:
        return None
    batches = np.array_split(x, BATCHES)
    medians = np.array([np.median(batch) for batch in batches])
    if np.ptp(medians) == 0:
        return Drift(0.0, 1.0)
    if x.size / BATCHES < BATCH_IN_TAU * _noise_tau(x, medians):
        return None
    from scipy.stats import kendalltau, theilslopes

    time = np.arange(BATCHES)
    slope = float(theilslopes(medians, time).slope)
    return Drift(slope * (BATCHES - 1) / middle, float(kendalltau(time, medians).pvalue))


def _noise_tau(x: npt.NDArray[np.float64], medians: npt.NDArray[np.float64]) -> float:
    position = (np.arange(x.size) * BATCHES) // x.size
    residuals = x - _shape(medians)[position]
    above = residuals > np.median(residuals)
    return initial_positive_sequence(above.astype(np.float64))


def _shape(medians: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the step or the line that is closest to the batch medians in least squares."""
    time = np.arange(BATCHES, dtype=np.float64)
    line = np.polyval(np.polyfit(time, medians, 1), time)
    shapes = [np.asarray(line, dtype=np.float64)]
    for cut in range(1, BATCHES):
        before, after = medians[:cut].mean(), medians[cut:].mean()
        shapes.append(np.where(time < cut, before, after))
    return min(shapes, key=lambda shape: float(((medians - shape) ** 2).sum()))
