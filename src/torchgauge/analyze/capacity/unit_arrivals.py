"""Schedules of one request per second on average, as long as a simulation needs them."""

from __future__ import annotations

import functools

import numpy as np

from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.simulation import Floats


@functools.lru_cache(maxsize=8)
def unit_arrivals(options: CapacityOptions, count: int) -> Floats:
    """Return the seconds of `count` requests of the options' kind; the first is at 0.

    Their rate is exact: near the highest one, what chance adds to it would decide about the waits.
    A recorded schedule is repeated, without a gap at its end other than those within it.
    """
    load, generator = options.load, np.random.default_rng((options.seed, 1))
    if load.kind == "file":
        within = np.diff(np.array(options.recorded))
        gaps = np.resize(within / within.mean(), count)
    elif load.kind == "constant":
        gaps = np.ones(count)
    elif load.kind == "gamma":
        shape = 1 / (load.variation or 1.0) ** 2
        gaps = generator.gamma(shape, 1 / shape, count)
    else:
        gaps = generator.exponential(1.0, count)
    if load.kind in ("poisson", "gamma"):
        gaps = gaps / gaps.mean()
    times: Floats = np.cumsum(gaps) - gaps[0]
    times.setflags(write=False)
    return times
