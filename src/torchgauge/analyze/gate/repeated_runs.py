"""Statistics of one run against several of the baseline: these tell by how much runs differ."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from torchgauge.analyze.gate.stored import HostNoise, Welch, uncalibrated
from torchgauge.analyze.latency.metrics_by_process import by_process
from torchgauge.imports import imported
from torchgauge.records.generation.generation import Generation
from torchgauge.records.metric import Metric
from torchgauge.records.profile import Profile
from torchgauge.records.record import Interval
from torchgauge.records.serving.requests import Estimate

MIN_RUNS = 3
# Sessions of a shared machine have heavier tails than normal ones, which a few runs do not show:
# of 40 real runs of one build the slowest lay 4.4 standard deviations from the others.
MOST_DEGREES = 4.0


class Sample(NamedTuple):
    """A metric's value in a run, with the standard error of its logarithm where that is known."""

    value: float
    error: float = 0.0


@dataclasses.dataclass(frozen=True)
class RunsTest:
    """A run's change against the mean of others.

    Attributes:
        welch: The log ratio, with the error of a single run and of their mean.
        baseline: The geometric mean of the others.
        runs: How many these are.
        spread: Their relative standard deviation.
        far: Whether the run was recorded longer after or before them than they span.
    """

    welch: Welch
    baseline: float
    runs: int
    spread: float
    far: bool

    @property
    def method(self) -> str:
        """The test, in words."""
        return f"Student's t, one run against {self.runs}"

    @property
    def reason(self) -> str:
        """Why no smaller change can be decided, in words."""
        if self.far:
            return (
                "the run was recorded further from the baseline's runs than these are from each "
                "other, so that sessions may differ by 20 % (assumed): record them over a longer "
                "time"
            )
        low = 5 * math.floor(20 * self.spread)  # in steps, so that figures share a reason
        return (
            f"{self.runs} runs of the baseline scatter by {low} to {low + 5} %: more of them, or a "
            "wider tolerance, can be decided"
        )


def sample_of_calls(run: Profile, metric: Metric) -> Sample | None:
    """Return the median of a generation's calls; None of a run without any."""
    values = by_process(run, metric)
    return Sample(statistics.median(values), _error_of_median(values)) if values else None


def against_runs(
    runs: Sequence[Profile],
    current: Profile,
    metric: Metric,
    sample: Callable[[Profile, Metric], Sample | None] = sample_of_calls,
) -> RunsTest | None:
    """Return the test of a metric; None of fewer than three runs that have it.

    If runs are alike but for chance, the current one lies around their mean by Student's t with
    runs - 1 degrees of freedom, 4 at most, and variance s² (1 + 1 / runs); where its own samples
    scatter more than that, by theirs. How far another session lies, runs of one session do not
    show: a run that is further from them in time than they span has the floor of a host never
    calibrated with it.
    """
    samples = [sample(run, metric) for run in runs]
    baseline = [run for run in samples if run is not None and run.value > 0]
    latest = sample(current, metric)
    if latest is None or latest.value <= 0 or len(baseline) < MIN_RUNS:
        return None
    logs = [math.log(run.value) for run in baseline]
    mean, spread = statistics.fmean(logs), statistics.stdev(logs)
    far = _is_far(runs, current)
    between = uncalibrated().between if far else 0.0
    own = max(spread, latest.error)
    error = math.sqrt(own**2 + spread**2 / len(baseline) + 2 * between**2)
    estimate = math.log(latest.value) - mean
    worse = estimate if metric.better == "lower" else -estimate
    return RunsTest(
        Welch(worse, error, min(len(baseline) - 1.0, MOST_DEGREES)),
        math.exp(mean),
        len(baseline),
        math.expm1(spread),
        far,
    )


def loaded(current: Generation, earlier: Sequence[Generation]) -> str:
    """Return why a slower run does not prove that the model changed; empty where it may.

    Where most runs of the baseline were beside other work too, that is part of their spread.
    """
    loads = [_is_loaded(run) for run in earlier]
    if not _is_loaded(current) or 2 * sum(loads) >= max(1, len(loads)):
        return ""
    return "other processes took much of the machine in the current run"


def _is_loaded(run: Generation) -> bool:
    return any(warning.id == "other-load" for warning in run.warnings)


def _error_of_median(values: Sequence[float]) -> float:
    """Return the standard error of the median's logarithm, by the normal law; 0 of one value."""
    if len(values) < 2:
        return 0.0
    return math.sqrt(math.pi / 2 / len(values)) * statistics.stdev(map(math.log, values))


def _is_far(runs: Sequence[Profile], current: Profile) -> bool:
    times = [datetime.fromisoformat(run.environment.created).timestamp() for run in runs]
    own = datetime.fromisoformat(current.environment.created).timestamp()
    return min(abs(own - time) for time in times) > max(times) - min(times)


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
