"""The test of two estimates under load: their own intervals, and how sessions differ."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from torchgauge.analyze.gate.repeated_runs import RunsTest
from torchgauge.analyze.gate.stored import HostNoise
from torchgauge.imports import imported
from torchgauge.records.record import Interval
from torchgauge.records.serving.distribution import Estimate

NORMAL = 1.959964  # what intervals of 95 % reach, in standard errors


class LoadTest(NamedTuple):
    """ln(current ÷ baseline), and how far its 95 % interval reaches down and up.

    Of several runs of the baseline `runs` is the test against these.
    """

    estimate: float
    down: float
    up: float
    runs: RunsTest | None = None

    @property
    def change(self) -> float:
        """The relative change."""
        return math.expm1(self.estimate)

    @property
    def interval(self) -> Interval:
        """Its 95 % interval."""
        low, high = self.estimate - self.down, self.estimate + self.up
        return Interval(low=math.expm1(low), high=math.expm1(min(high, _MAX_REACH)))

    @property
    def reversed(self) -> LoadTest:
        """The test of baseline ÷ current, for figures of which less is worse."""
        return LoadTest(-self.estimate, self.up, self.down)

    def p_above(self, accepted: float) -> float:
        """The probability of such a change where the true one is at most `accepted`."""
        if self.runs is not None:
            return self.runs.welch.p_above(accepted)
        ndtr = imported("scipy.special").ndtr

        above = self.estimate - math.log1p(accepted)
        if self.down == 0:
            return 0.0 if above > 0 else 1.0
        return float(ndtr(-above * NORMAL / self.down))


_MAX_REACH = 100.0  # an interval that reaches further excludes nothing


def load_test(
    baseline: Estimate, current: Estimate, noise: HostNoise, growth: float = 1.0
) -> LoadTest | None:
    """Return the test of two estimates; None where one has no interval above 0.

    The distances of the ends from the estimates are added as squares (MOVER; Zou and Donner 2008),
    which keeps the skewness of percentiles. Sessions differ as `noise` says, and under load by
    `growth` times as much.
    """
    sides = []
    for estimate in (baseline, current):
        interval = estimate.interval
        if interval is None or estimate.value <= 0 or interval.low <= 0:
            return None
        value = math.log(estimate.value)
        sides.append((value, value - math.log(interval.low), math.log(interval.high) - value))
    (old, old_down, old_up), (new, new_down, new_up) = sides
    session = session_reach(noise, growth)
    down, up = math.hypot(new_down, old_up, session), math.hypot(new_up, old_down, session)
    return LoadTest(new - old, min(down, _MAX_REACH), min(up, _MAX_REACH))


def repeated_test(runs: RunsTest) -> LoadTest:
    """Return a test against several runs of the baseline, positive where the figure got worse."""
    interval = runs.welch.interval()
    reach = math.log1p(interval.high) - runs.welch.estimate
    return LoadTest(runs.welch.estimate, reach, reach, runs)


def session_reach(noise: HostNoise, growth: float) -> float:
    """Return the 95 % reach of what two sessions of one build differ by, as a logarithm."""
    return min(math.log1p(dataclasses.replace(noise, remembered=False).floor) * growth, _MAX_REACH)
