"""Whether a running measurement has enough samples: the stopping rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torchgauge.analyze.latency.warmup import find_warmup
from torchgauge.analyze.statistics.autocorrelation import autocorrelation_time, cautious
from torchgauge.analyze.statistics.correlated_percentiles import independent_samples
from torchgauge.analyze.statistics.median import median_interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

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
