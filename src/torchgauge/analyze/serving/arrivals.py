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

# Share of a level's duration, whose requests are in no figure.
WARM_UP = 0.1
# A schedule is held whole, and each of its requests leaves a row in the record.
MOST_REQUESTS = 10_000_000


def schedule(
    arrivals: Arrivals, *, duration: float, count: int | None = None, recorded: Sequence[float] = ()
) -> _Floats:
    """Return when requests are due, in seconds from the begin, ascending, within `duration`.

    As many are due as the rate asks for, rounded, of a Poisson process both in the warm-up and
    after it: given their number, they are Poisson still, and what is offered is what was asked.
    The same seed gives the same schedule; a number of requests is stretched to another rate, so
    that two rates differ by no chance of their own. Times between requests are exponential
    (poisson), equal, or gamma-distributed with the given coefficient of variation, each over their
    sum. A recorded schedule begins at 0 and is stretched to the rate, if there is one. A closed
    loop has no schedule: it is empty.

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
        return times[times < duration][:count]
    return _renewals(arrivals, duration, count)


def _renewals(arrivals: Arrivals, duration: float, count: int | None) -> _Floats:
    rate = arrivals.rate
    if rate is None or not 0 < rate < math.inf:
        raise _invalid(f"A rate of {rate} requests/s is not possible.")
    expected = min(rate * duration, count if count is not None else math.inf)
    if not expected <= MOST_REQUESTS:
        message = f"{expected:.3g} requests are more than the {MOST_REQUESTS:,} that can be held."
        raise _invalid(message)
    if arrivals.kind == "constant":
        return np.arange(math.ceil(expected - 1e-9)) / rate
    variation = 1.0 if arrivals.kind == "poisson" else arrivals.variation
    if variation is None or not LEAST_VARIATION <= variation <= MOST_VARIATION:
        raise _invalid(f"A coefficient of variation of {variation} is not possible.")
    shape = variation**-2
    random = np.random.default_rng(arrivals.seed)
    number = max(round(expected), 1)
    # Of others than Poisson the first after any moment has no time of the same kind.
    warm_up = round(WARM_UP * number) if arrivals.kind == "poisson" else 0
    parts = []
    for begin, end in ((0, warm_up), (warm_up, number)):
        gaps = random.gamma(shape, 1 / shape, end - begin + 1)
        parts.append(begin + (end - begin) * gaps.cumsum()[:-1] / gaps.sum())
    return np.minimum(np.concatenate(parts) * (expected / number), expected) / rate


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
