"""When requests are due: Poisson, constant, gamma, or as they were recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.arrival_kinds import LEAST_VARIATION, MOST_VARIATION
from torchgauge.errors import InputError
from torchgauge.records.serving.level import Arrivals

_Floats = npt.NDArray[np.float64]

# A schedule is held whole, and each of its requests leaves a row in the record.
MOST_REQUESTS = 10_000_000


def schedule(
    arrivals: Arrivals, *, duration: float, count: int | None = None, recorded: Sequence[float] = ()
) -> _Floats:
    """Return when requests are due, in seconds from the begin, ascending and below `duration`.

    The same seed gives the same schedule; at another rate it is stretched, so that two rates differ
    by no chance of their own. Times between requests are exponential (poisson), equal, or
    gamma-distributed with the given coefficient of variation. A recorded schedule begins at 0 and
    is stretched to the rate, if there is one. A closed loop has no schedule: it is empty.

    Args:
        arrivals: Their kind, rate, variation and seed.
        duration: Seconds.
        count: Requests at most.
        recorded: Seconds at which requests arrived once, in any order, for kind "file".

    Raises:
        InputError: `arrivals-invalid` without a rate above 0, without a variation above 0 for
            gamma, without recorded times for a file, or for more requests than can be held.
    """
    if arrivals.kind == "closed":
        return np.empty(0)
    if arrivals.kind == "at once":
        return np.zeros(count or 0)
    if arrivals.kind == "file":
        times = _stretched(recorded, arrivals.rate)
    else:
        times = _renewals(arrivals, duration, count)
    return times[times < duration][:count]


def _renewals(arrivals: Arrivals, duration: float, count: int | None) -> _Floats:
    rate = arrivals.rate
    if rate is None or not 0 < rate < math.inf:
        raise _invalid(f"A rate of {rate} requests/s is not possible.")
    expected = min(rate * duration, count if count is not None else math.inf)
    if not expected <= MOST_REQUESTS:
        message = f"{expected:.3g} requests are more than the {MOST_REQUESTS:,} that can be held."
        raise _invalid(message)
    if arrivals.kind == "constant":
        return np.arange(math.ceil(expected)) / rate
    variation = 1.0 if arrivals.kind == "poisson" else arrivals.variation
    if variation is None or not LEAST_VARIATION <= variation <= MOST_VARIATION:
        raise _invalid(f"A coefficient of variation of {variation} is not possible.")
    shape = variation**-2
    random = np.random.default_rng(arrivals.seed)
    # Chunks of a fixed size: what is drawn does not depend on the duration.
    times = np.empty(0)
    while times.size < expected or (count is None and times[-1] < rate * duration):
        gaps = random.gamma(shape, 1 / shape, 4096)
        times = np.concatenate((times, gaps.cumsum() + (times[-1] if times.size else 0.0)))
    return times / rate


def _stretched(recorded: Sequence[float], rate: float | None) -> _Floats:
    times = np.sort(np.asarray(recorded, dtype=np.float64))
    if times.size == 0 or not np.isfinite(times).all():
        raise _invalid("The recorded schedule has no times, or one that is not a number.")
    times -= times[0]
    if rate is None:
        return times
    if not 0 < rate < math.inf or times[-1] == 0:
        raise _invalid(f"The recorded schedule cannot be stretched to {rate} requests/s.")
    return np.asarray(times * ((times.size - 1) / times[-1] / rate), dtype=np.float64)


def _invalid(message: str) -> InputError:
    return InputError(
        message,
        id="arrivals-invalid",
        remedy="Give a rate above 0, a time or a number of requests that ends, and arrivals as in "
        "poisson, constant, gamma:2 or the name of a file with one time in seconds a line.",
    )
