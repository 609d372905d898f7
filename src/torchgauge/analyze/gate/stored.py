"""Statistics of a run against a stored one, where sessions differ as well as builds."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchgauge.imports import imported
from torchgauge.records.metric import Metric
from torchgauge.records.record import Interval

if TYPE_CHECKING:
    from torchgauge.analyze.latency.correction import Correction

MIN_PROCESSES = 6
MIN_CALLS = 3  # of a generation: fewer have no spread
CONFIDENCE = 0.95
# Any two remembered runs may be compared, so false alarms must be rare.
REMEMBERED_CONFIDENCE = 0.99
# Where the host was never calibrated, a change of a fifth may be the machine's alone.
UNCALIBRATED_FLOOR = 0.20


def min_repeats(metric: Metric) -> int:
    """Return how many processes, of generations calls, a side needs for a test."""
    return MIN_CALLS if metric.of_calls else MIN_PROCESSES


@dataclasses.dataclass(frozen=True)
class HostNoise:
    """How a host's log medians spread from session to session: standard deviation, sessions.

    `calibrated` is False for the value that is assumed of a host never looked at; `remembered` says
    that the spread is that of earlier runs, `busy` that other load on the machine is part of it.
    `correction` is what the machine explains of the difference of the two runs compared, where a
    correction has been seen to help.
    """

    between: float
    sessions: float
    calibrated: bool = True
    remembered: bool = False
    busy: bool = False
    correction: Correction | None = None

    @property
    def confidence(self) -> float:
        """The confidence with which a change is distinguished from noise of the host."""
        return REMEMBERED_CONFIDENCE if self.remembered else CONFIDENCE

    @property
    def floor(self) -> float:
        """The relative change that two sessions of one build show at most, at that confidence."""
        reach = _reach(self.sessions - 1, self.confidence)
        return math.expm1(reach * math.sqrt(2) * self.between)

    @property
    def corrected(self) -> HostNoise:
        """The noise after the correction."""
        correction = self.correction
        if correction is None:
            return self
        return dataclasses.replace(
            self, between=correction.between, sessions=correction.runs, correction=None
        )

    @property
    def source(self) -> str:
        """The source of the spread, in words."""
        if self.remembered:
            return f"{self.sessions - 1:.0f} earlier runs on this host"
        return "the host's calibration" if self.calibrated else "a host never calibrated"


def uncalibrated() -> HostNoise:
    """Return the noise assumed of a host that was never calibrated: a floor of 20 %."""
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
        stdtr = imported("scipy.special").stdtr

        return float(2 * stdtr(self.freedom, -abs(self.estimate) / self.error))

    def p_above(self, accepted: float) -> float:
        """Return the probability of such a difference without a change above `accepted`."""
        above = self.estimate - math.log1p(accepted)
        if self.error == 0:
            return 0.0 if above > 0 else 1.0
        stdtr = imported("scipy.special").stdtr

        return float(stdtr(self.freedom, -above / self.error))


def welch(
    baseline: Sequence[float], current: Sequence[float], noise: HostNoise | None = None
) -> Welch | None:
    """Return the change of the processes' medians (seconds or any positive figure).

    `noise` adds the variance between sessions, once for each side. None where a side has fewer than
    two processes or a figure that is not above 0.

    Source: Welch (1947) on logs, because effects multiply; degrees of freedom after Satterthwaite.
    """
    if min(len(baseline), len(current)) < 2 or min(*baseline, *current) <= 0:
        return None
    parts: list[tuple[float, float]] = []
    means = []
    for side in (baseline, current):
        logs = [math.log(value) for value in side]
        means.append(statistics.fmean(logs))
        parts.append((statistics.variance(logs) / len(logs), len(logs) - 1))
    if noise is not None:
        parts.append((2 * noise.between**2, max(1, noise.sessions - 1)))
    total_variance = math.fsum(variance for variance, _ in parts)
    weights = math.fsum(variance**2 / freedom for variance, freedom in parts)
    freedom = total_variance**2 / weights if weights else float(len(baseline) + len(current) - 2)
    return Welch(means[1] - means[0], math.sqrt(total_variance), freedom)


def corrected(
    baseline: Sequence[float], current: Sequence[float], correction: Correction
) -> Welch | None:
    """Return the change of times corrected for the part that the machine explains.

    None where a side has no figure above 0.
    """
    if not baseline or not current or min(*baseline, *current) <= 0:
        return None
    means = [statistics.fmean(map(math.log, side)) for side in (baseline, current)]
    estimate = means[1] - means[0] - correction.log_ratio
    return Welch(estimate, correction.error, correction.runs - 1)


def _reach(freedom: float, confidence: float = CONFIDENCE) -> float:
    stdtrit = imported("scipy.special").stdtrit

    return float(stdtrit(max(1.0, freedom), 0.5 + confidence / 2))
