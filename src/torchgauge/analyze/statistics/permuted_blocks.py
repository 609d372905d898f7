"""The permutation test on blocks of four processes, two of each build, and its interval."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from torchgauge.records.record import Interval

Floats = npt.NDArray[np.float64]
FourLogs = tuple[float, float, float, float]
"""The logs of a block's four processes, which are A, B, B, A."""

CONFIDENCE = 0.975
EXACT_BLOCKS = 6  # blocks up to which every assignment is counted: 6⁶ = 46,656
DRAWS = 20_000
# What two of the four processes are B's: first the assignment that was run (A, B, B, A).
ASSIGNMENTS = np.array([[-1, 1, 1, -1], [-1, -1, 1, 1], [-1, 1, -1, 1]]) / 2
ASSIGNMENTS = np.concatenate([ASSIGNMENTS, -ASSIGNMENTS])
OVERLAPS = ASSIGNMENTS @ ASSIGNMENTS[0]
FAR = 4.0
"""Blocks whose variance is beyond this multiple of the median one's count for less."""


def four_of(logs: Iterable[float]) -> FourLogs:
    """Return the logs of a block's four processes."""
    a, b, b_again, a_again = logs
    return a, b, b_again, a_again


class BlockTest:
    """The change of B against A over blocks, from the log times of each block's four processes.

    If both builds are alike, the four times of a block could have come in any order: the mean d is
    compared with those under all other assignments of two processes to B. No distribution of the
    noise is assumed; blocks may be noisy in different degrees, and resemble their neighbours. A
    block whose four times are far more scattered than those of the others, whichever build they
    are of, counts for less in the mean.

    Source: Pitman (1937) for the test; Garthwaite (1996) for its interval.
    """

    def __init__(self, logs: Sequence[FourLogs]) -> None:
        values = np.asarray(logs, dtype=np.float64)
        choices = _choices(len(values))
        weights = self._weights = _weights(values)
        means = (values @ ASSIGNMENTS.T)[np.arange(len(values)), choices] @ weights
        overlaps = OVERLAPS[choices] @ weights
        is_different = overlaps < 1 - 1e-9
        self.blocks = len(values)
        self.mean = float(means[0])
        self._count = len(choices)
        self._same_count = self._count - int(is_different.sum())
        self._within_builds = values[:, [0, 1]] - values[:, [3, 2]]
        # The change from which on an assignment's mean is no longer below the observed one.
        self._changes = np.sort((means[0] - means[is_different]) / (1 - overlaps[is_different]))

    def p_above(self, bound: float) -> float:
        """Return p of the hypothesis that the true mean is at most `bound`."""
        reached = np.searchsorted(self._changes, bound + 1e-12, "right")
        return (self._same_count + int(reached)) / self._count

    @property
    def p(self) -> float:
        """The two-sided probability of so large a mean without a change."""
        above = self._same_count + len(self._changes) - int(np.searchsorted(self._changes, -1e-12))
        return min(1.0, 2 * min(self.p_above(0.0), above / self._count))

    def bounds(self, confidence: float) -> tuple[float, float]:
        """Return the one-sided bounds of the mean, infinite where there are too few blocks."""
        rank = math.floor((1 - confidence) * self._count + 1e-9) - self._same_count
        if not 0 <= rank < len(self._changes):
            return -math.inf, math.inf
        return float(self._changes[rank]), float(self._changes[-1 - rank])

    @property
    def deviation(self) -> float:
        """The standard deviation of one block's d, by how far processes of one build differ."""
        return math.sqrt(float(self._weights @ (self._within_builds**2).sum(axis=1)) / 4)

    @property
    def change(self) -> float:
        """The mean as a relative change."""
        return math.expm1(self.mean)

    def interval(self) -> Interval | None:
        """Return the bounds as a relative change; both hold 95 %. None where they are infinite."""
        low, high = self.bounds(CONFIDENCE)
        return None if math.isinf(low) else Interval(low=math.expm1(low), high=math.expm1(high))


def _weights(values: Floats) -> Floats:
    """Return the blocks' shares of the mean: equal, but for those that are far more scattered."""
    variances = values.var(axis=1, ddof=1)
    usual = max(FAR * float(np.median(variances)), 1e-12)
    weights = np.minimum(1.0, usual / np.maximum(variances, usual))
    return np.asarray(weights / weights.sum())


@functools.cache
def _choices(blocks: int) -> npt.NDArray[np.intp]:
    """Return assignments by block, the observed one first: all, or 20,000 random ones and it."""
    if blocks <= EXACT_BLOCKS:
        return np.indices((len(ASSIGNMENTS),) * blocks).reshape(blocks, -1).T
    drawn = np.random.default_rng(blocks).integers(len(ASSIGNMENTS), size=(DRAWS, blocks))
    drawn[0] = 0
    return drawn
