"""Where a measurement's warm-up ends, and when it has enough samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.statistics.autocorrelation import (
    autocorrelation_time,
    cautious,
    independent_samples,
)
from torchgauge.analyze.statistics.median import median_interval

BATCH = 5
MIN_SAMPLES = 10
TAIL = 0.05


class WarmUp(NamedTuple):
    """How many samples at the start are warm-up, and whether its end was found among them."""

    samples: int
    end_found: bool


def find_warmup(samples: npt.ArrayLike) -> WarmUp:
    """Return the truncation d that minimises Σ_{i≥d}(z_i − mean_d)² / (n − d)² over d ≤ n/2.

    `samples` are latencies in seconds, in order. z are the means of batches of 5 (of fewer
    below 50 samples, so that ten batches remain) of the log latencies, winsorised at 5 % on either
    side: one late spike must not look like the end of a warm-up. Without the bound d ≤ n/2 the rule
    is degenerate. At the bound no end was found; below it one more batch is left out. Below 10
    samples nothing can be said.

    Source: White, "An effective truncation heuristic for bias reduction in simulation output"
    (1997), in its batched form MSER-5.
    """
    x = np.asarray(samples, dtype=np.float64)
    if x.size < MIN_SAMPLES:
        return WarmUp(0, end_found=False)
    batch = max(1, min(BATCH, x.size // 10))
    z = _batch_means(_centred_logs(x), batch)
    bound = z.size // 2
    best = int(np.argmin(_standard_errors(z)[: bound + 1]))
    if best == bound:
        return WarmUp(best * batch, end_found=False)
    # A warm-up ends within a batch, and one shorter than a batch is winsorised out of sight.
    return WarmUp((best + 1) * batch, end_found=True)


def _centred_logs(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    positive = x[x > 0]
    if positive.size == 0:
        return np.zeros_like(x)
    # A coarse clock reads 0 for a call shorter than its tick: half the shortest reading stands
    # for "less than one tick".
    logs = np.log(np.maximum(x, positive.min() / 2))
    # Centred, so that equal samples give exact zeros and no rounding decides.
    logs -= np.median(logs)
    low, high = np.quantile(logs, (TAIL, 1 - TAIL))
    return np.asarray(np.clip(logs, low, high), dtype=np.float64)


def _batch_means(z: npt.NDArray[np.float64], batch: int) -> npt.NDArray[np.float64]:
    count = z.size // batch
    return np.asarray(z[: count * batch].reshape(count, batch).mean(axis=1), dtype=np.float64)


def _standard_errors(z: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    remaining = np.arange(z.size, 0, -1)
    total = np.cumsum(z[::-1])[::-1]
    squares = np.cumsum((z * z)[::-1])[::-1]
    spread = squares - total * total / remaining
    return np.asarray(spread / remaining**2, dtype=np.float64)


FIRST_LOOK = 100
GROWTH = 1.5
INDEPENDENT = 50
HIGHEST_PERCENTILE = 0.99


class Look(NamedTuple):
    """The result of a look at the samples so far; `relative_error` None: there is no figure.

    `independent` is what the steady samples are worth at any percentile up to the 99th.
    """

    enough: bool
    relative_error: float | None
    independent: float = 0.0


def look_counts() -> Iterator[int]:
    """Yield the sample counts at which to look, 100·1.5^k.

    Every look is a chance to stop on a lucky interval; so few of them leave the coverage at 95 %.
    """
    count = float(FIRST_LOOK)
    while True:
        yield int(count)
        count *= GROWTH


def look(
    samples: npt.ArrayLike,
    target_rel_error: float,
    *,
    warmup: int | None = None,
    least_warmup: int = 0,
) -> Look:
    """Return whether the median of `samples` (seconds, in order) is known to the target.

    Enough: a warm-up that has ended, an interval of the median within ±`target_rel_error` of it,
    and at least 50·τ' steady samples, below which τ itself is not known. `warmup` samples are left
    out where given; otherwise the data decide, and at least `least_warmup` go.
    """
    x = np.asarray(samples, dtype=np.float64)[least_warmup if warmup is None else warmup :]
    detected_warmup = find_warmup(x)
    steady = x[detected_warmup.samples :] if warmup is None else x
    tau = autocorrelation_time(steady)
    interval = median_interval(steady, tau)
    if interval is None or (middle := float(np.median(steady))) <= 0:
        return Look(enough=False, relative_error=None)
    independent = independent_samples(steady, HIGHEST_PERCENTILE)
    error = interval.half_width / middle
    tau_known = steady.size >= INDEPENDENT * cautious(tau, steady.size)
    enough = detected_warmup.end_found and tau_known and error <= target_rel_error
    return Look(enough, error, independent)
