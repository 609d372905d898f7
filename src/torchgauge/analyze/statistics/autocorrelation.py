"""The integrated autocorrelation time τ of a series of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.imports import imported


def autocorrelation_time(samples: npt.ArrayLike) -> float:
    """Return τ ≥ 1 of the indicator x > median, in samples: n/τ samples are as good as independent.

    The median's variance depends on the indicator's autocorrelation and not on that of the values,
    and spikes cannot dominate it. Equal samples have τ = 1.
    """
    x = np.asarray(samples, dtype=np.float64)
    if x.size < 2:
        return 1.0
    middle = np.median(x)
    above = x > middle
    if not above.any():  # more than half the samples are the largest value: a coarse clock
        above = x >= middle
    return initial_positive_sequence(above.astype(np.float64))


def initial_positive_sequence(series: npt.NDArray[np.float64]) -> float:
    """Return −1 + 2·Σ(ρ_2m + ρ_2m+1) over the first pairs with a positive sum, at least 1.

    Source: Geyer, "Practical Markov chain Monte Carlo", Statistical Science 7 (1992).
    """
    deviations = series - series.mean()
    variance = float(np.square(deviations).sum())  # a product of BLAS waits for its threads
    if variance == 0.0:
        return 1.0
    pairs = series.size // 2
    power = 1 << (2 * series.size - 1).bit_length()
    # As fast a length as a power of two, and often a shorter one.
    padded = next(n for n in (5 * power // 8, 3 * power // 4, power) if n >= 2 * series.size)
    spectrum = np.fft.rfft(deviations, padded)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), padded)[: 2 * pairs]
    sums = covariance.reshape(pairs, 2).sum(axis=1) / variance
    negative = np.flatnonzero(sums <= 0)
    end = int(negative[0]) if negative.size else pairs
    return max(1.0, float(2 * sums[:end].sum() - 1))


def cautious(tau: float, n: int) -> float:
    """Return τ' = τ·(1 + 2·sqrt(τ/n) + 3·τ/n), which allows for the error of τ itself.

    On few samples τ is estimated too low; with plain τ the coverage of the median's interval
    under AR(.8) noise falls to 79 % (benchmarks/latency_simulation.py).
    """
    share = tau / n
    return tau * (1 + 2 * math.sqrt(share) + 3 * share)


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


# The upper end fails more often than the lower one: a run that saw too few long queues shows both
# too low a percentile and too little correlation (benchmarks/load_coverage.py).
LOWER_TAIL = 0.025
UPPER_TAIL = 0.0005
# The same of a share above a limit, which is judged where few samples lie beyond it.
SHARE_UPPER_TAIL = 0.005
# Independent samples beyond a percentile, on the side with fewer, below which τ is not known.
MIN_BEYOND = 10
# Besides the median and the percentile itself: long queues build up between them.
LEVELS = (0.5, 0.75, 0.9, 0.95)


class PercentileFigure(NamedTuple):
    """A percentile, its 95 % interval in the samples' unit, and τ′ in samples.

    `low` and `high` are None where `needed` samples would give them; of an infinite sample `value`
    or `high` may be infinite.
    """

    value: float
    low: float | None
    high: float | None
    correlation: float
    needed: int


class CorrelatedSamples:
    """Samples in the order of time, whose percentiles share one sort and the correlation times."""

    def __init__(self, samples: npt.ArrayLike) -> None:
        self.samples: _Floats = np.asarray(samples, dtype=np.float64)
        self.ascending: _Floats = np.sort(self.samples)
        self._times: dict[float, float] = {}

    def value(self, fraction: float) -> float:
        """Return the least sample that a share `fraction` of the samples do not exceed."""
        rank = math.ceil(fraction * self.ascending.size - 1e-9)
        return float(self.ascending[max(rank, 1) - 1])

    def correlation_time(self, fraction: float) -> float:
        """Return τ of [x > percentile], in samples, at least 1."""
        if fraction not in self._times:
            limit = self.value(fraction)
            above = self.samples > limit
            if not above.any():  # the percentile is the largest value: a coarse clock
                above = self.samples >= limit
            self._times[fraction] = initial_positive_sequence(above.astype(np.float64))
        return self._times[fraction]

    @cached_property
    def _common_time(self) -> float:
        return max(map(self.correlation_time, LEVELS))

    def longest_time(self, fraction: float) -> float:
        """Return the largest τ of [x > level], over the levels and the percentile itself."""
        return max(self._common_time, self.correlation_time(fraction))

    def percentile(self, fraction: float) -> PercentileFigure:
        """Return a percentile with the interval between binomial ranks at n/τ′ samples.

        τ is the largest of the correlation times of [x > level] over the levels and the percentile
        itself, enlarged by its own uncertainty to τ′. Under queueing each of them alone is too
        small at times; below 10 independent samples beyond the percentile there is no interval,
        since a run that saw few queues cannot know how few.

        Source: David & Nagaraja, "Order Statistics", section 7.1, with n replaced by n/τ′.
        """
        n = self.samples.size
        tau = enlarged(self.longest_time(fraction), n)
        value = self.value(fraction)
        effective = int(n / tau)
        needed = math.ceil(independent_needed(fraction) * tau)
        if n < needed:
            return PercentileFigure(value, None, None, tau, needed)
        low, high = _ranks(effective, fraction)
        samples_per_rank = n / effective
        first = math.floor((low - 1) * samples_per_rank)
        last = n - 1 - math.floor((effective - high) * samples_per_rank)
        ends = float(self.ascending[first]), float(self.ascending[last])
        return PercentileFigure(value, *ends, tau, needed)

    def share_above(self, limit: float) -> tuple[float, float, float]:
        """Return the share of samples above a limit, with the ends of its 95 % interval.

        Clopper and Pearson's at n/τ′ samples, with τ′ as for percentiles. It exists however few
        these are: a single sample above the limit contradicts that one in a hundred is.
        """
        above = (self.samples > limit).astype(np.float64)
        tau = max(self._common_time, initial_positive_sequence(above))
        effective = max(above.size / enlarged(tau, above.size), 1.0)
        share = float(above.mean())
        return (share, *share_interval(share, effective, upper_tail=SHARE_UPPER_TAIL))


def share_interval(
    share: float, count: float, *, upper_tail: float = LOWER_TAIL
) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a share of `count` independent samples.

    Source: Clopper & Pearson, Biometrika 26 (1934); `count` need not be whole.
    """
    inverse = imported("scipy.special").betaincinv
    hits = share * count
    low = float(inverse(hits, count - hits + 1, LOWER_TAIL)) if share > 0 else 0.0
    high = float(inverse(hits + 1, count - hits, 1 - upper_tail)) if share < 1 else 1.0
    return low, high


def percentile_time(samples: npt.ArrayLike, fraction: float) -> float:
    """Return how many timed calls in a row are worth one independent call at a percentile.

    Slow calls may follow each other where the others do not resemble their neighbours, so τ at the
    median is too small. Calls of one process do not queue: the milder enlargement suffices.
    """
    calls = CorrelatedSamples(samples)
    return cautious(calls.longest_time(fraction), calls.samples.size)


def independent_samples(samples: Sequence[float] | _Floats, fraction: float) -> float:
    """Return how many independent calls timed ones are worth at a percentile."""
    return len(samples) / percentile_time(samples, fraction)


def enlarged(tau: float, n: int) -> float:
    """Return τ′ = τ·(1 + 4·sqrt(τ/n) + 20·τ/n): on few samples τ is found too small."""
    share = tau / n
    return tau * (1 + 4 * math.sqrt(share) + 20 * share)


def independent_needed(fraction: float) -> int:
    """Return how many independent samples an interval takes: 1,000 for p99."""
    by_tail = max(
        math.ceil(math.log(LOWER_TAIL) / math.log(1 - fraction)),
        math.ceil(math.log(UPPER_TAIL) / math.log(fraction)),
    )
    return max(by_tail, math.ceil(MIN_BEYOND / min(fraction, 1 - fraction) - 1e-9))


def _ranks(n: int, fraction: float) -> tuple[int, int]:
    binomial = imported("scipy.special").bdtr(np.arange(n + 1), n, fraction)
    low = int(np.searchsorted(binomial, LOWER_TAIL))
    high = int(np.searchsorted(binomial, 1 - UPPER_TAIL)) + 1
    return max(low, 1), min(high, n)
