"""A run against a stored one: the other build is not here, so that sessions differ as well."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from torchgauge.model.record import Interval

FEWEST = 6
CONFIDENCE = 0.95
# Where the host was never calibrated, a change of a fifth may be the machine's alone.
UNCALIBRATED_FLOOR = 0.20


@dataclasses.dataclass(frozen=True)
class HostNoise:
    """How a host's log medians spread from session to session: standard deviation, sessions.

    `calibrated` is False for the value that is assumed of a host never looked at.
    """

    between: float
    sessions: int
    calibrated: bool = True

    @property
    def floor(self) -> float:
        """The relative change that two sessions of one build show once in twenty."""
        return math.expm1(_reach(self.sessions - 1) * math.sqrt(2) * self.between)


def uncalibrated() -> HostNoise:
    """Return what is assumed of a host that was never calibrated: a floor of 20 %."""
    between = math.log1p(UNCALIBRATED_FLOOR) / (_reach(1_000) * math.sqrt(2))
    return HostNoise(between, sessions=1_001, calibrated=False)


@dataclasses.dataclass(frozen=True)
class Welch:
    """The log ratio current ÷ baseline: its estimate, standard error, degrees of freedom."""

    estimate: float
    error: float
    freedom: float

    @property
    def change(self) -> float:
        """The relative change."""
        return math.expm1(self.estimate)

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return the two-sided interval of the relative change."""
        reach = _reach(self.freedom, confidence) * self.error
        return Interval(
            low=math.expm1(self.estimate - reach),
            high=math.expm1(self.estimate + reach),
            confidence=confidence,
        )

    @property
    def p(self) -> float:
        """The two-sided probability of so large a difference without a change."""
        if self.error == 0:
            return 1.0 if self.estimate == 0 else 0.0
        from scipy.special import stdtr

        return float(2 * stdtr(self.freedom, -abs(self.estimate) / self.error))


def welch(
    baseline: Sequence[float], current: Sequence[float], noise: HostNoise | None = None
) -> Welch | None:
    """Return the change of the processes' medians (seconds or any positive figure).

    `noise` adds what sessions differ by, once for each side. None where a side has fewer than two
    processes or a figure that is not above 0.

    Source: Welch (1947) on logs, because effects multiply; degrees of freedom after Satterthwaite.
    """
    if min(len(baseline), len(current)) < 2 or min(*baseline, *current) <= 0:
        return None
    parts = []
    means = []
    for side in (baseline, current):
        logs = [math.log(value) for value in side]
        means.append(statistics.fmean(logs))
        parts.append((statistics.variance(logs) / len(logs), len(logs) - 1))
    if noise is not None:
        parts.append((2 * noise.between**2, max(1, noise.sessions - 1)))
    whole = math.fsum(variance for variance, _ in parts)
    weights = math.fsum(variance**2 / freedom for variance, freedom in parts)
    freedom = whole**2 / weights if weights else float(len(baseline) + len(current) - 2)
    return Welch(means[1] - means[0], math.sqrt(whole), freedom)


def _reach(freedom: float, confidence: float = CONFIDENCE) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(max(1.0, freedom), 0.5 + confidence / 2))
