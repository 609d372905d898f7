"""Best time of a call: the shortest of several repetitions, each long enough."""

from __future__ import annotations

import math
from collections.abc import Callable

from torchgauge.clock import Clock
from torchgauge.device.base import Device

REPETITIONS = 12
MIN_REPETITIONS = 3
SECONDS = 0.003
BUDGET = 0.1
METHOD = (
    f"best of {REPETITIONS} repetitions of {SECONDS * 1e3:.0f} ms at least "
    f"({MIN_REPETITIONS} where one call takes long), after an untimed one"
)


def best_time(
    call: Callable[[], object],
    device: Device,
    clock: Clock,
    budget: float | None = None,
) -> float:
    """Return the seconds per call of the fastest repetition.

    `budget` is the seconds of repetitions after which no more than the fewest are timed.

    What disturbs a repetition makes it slower, never faster, and each is long beside the clock's
    resolution: the shortest is the nearest to what the device can do. Where the device has a timer
    of its own, that is what counts.
    """
    call()
    once = max(_timed(call, 1, device, clock), 1e-9)
    calls = max(1, math.ceil(SECONDS / once))
    limit = BUDGET if budget is None else budget
    times: list[float] = []
    while len(times) < MIN_REPETITIONS or (len(times) < REPETITIONS and sum(times) < limit):
        times.append(_timed(call, calls, device, clock))
    return min(times) / calls


def _timed(call: Callable[[], object], calls: int, device: Device, clock: Clock) -> float:
    timer = device.timer()
    device.synchronize()
    start = clock.now()
    if timer is not None:
        timer.start()
    for _ in range(calls):
        call()
    if timer is not None:
        timer.stop()
    device.synchronize()
    return timer.elapsed() if timer is not None else (clock.now() - start) * 1e-9
