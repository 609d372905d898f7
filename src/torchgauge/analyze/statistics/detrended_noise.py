"""The noise of a run after its best-fitting step or line is taken out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.statistics.autocorrelation import initial_positive_sequence

BATCHES = 20

_Floats = npt.NDArray[np.float64]


def batch_medians(samples: _Floats) -> _Floats:
    """Return the medians of 20 batches of consecutive samples, in seconds."""
    return np.array([np.median(batch) for batch in np.array_split(samples, BATCHES)])


def noise_tau(samples: _Floats) -> float:
    """Return the autocorrelation time τ about the best-fitting step or line, in samples.

    A step or a drift raises the plain τ, up to the length of the run; a test that divides by that
    τ, or that waits for batches of 5τ, would excuse the very thing it looks for.
    """
    residuals = samples - _shape(batch_medians(samples), samples.size)
    above = residuals > np.median(residuals)
    return initial_positive_sequence(above.astype(np.float64))


def _shape(medians: _Floats, count: int) -> _Floats:
    """Return the step or the line closest to the batch medians in least squares, per sample."""
    batch = (np.arange(count) + 0.5) * BATCHES / count
    middle = np.arange(BATCHES) + 0.5
    line = np.polyfit(middle, medians, 1)
    best = float(((medians - np.polyval(line, middle)) ** 2).sum())
    shape = np.asarray(np.polyval(line, batch), dtype=np.float64)
    for cut in range(1, BATCHES):
        before, after = medians[:cut], medians[cut:]
        error = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
        if error < best:
            best, shape = error, np.where(batch < cut, before.mean(), after.mean())
    return shape
