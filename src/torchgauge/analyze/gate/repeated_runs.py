"""Statistics of one run against several of the baseline: these tell by how much runs differ."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from datetime import datetime

from torchgauge.analyze.gate.stored import Welch, uncalibrated
from torchgauge.analyze.latency.metrics_by_process import by_process
from torchgauge.records.generation.generation import Generation
from torchgauge.records.metric import Metric
from torchgauge.records.profile import Profile

MIN_RUNS = 3


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
    def reason(self) -> str:
        """Why no smaller change can be decided, in words."""
        if self.far:
            return (
                "the run was recorded further from the baseline's runs than these are from each "
                "other, so that sessions may differ by 20 % (assumed): record them over a longer "
                "time"
            )
        return (
            f"{self.runs} runs of the baseline scatter by {self.spread:.1%}: more of them, or a "
            "wider tolerance, can be decided"
        )


def against_runs(runs: Sequence[Profile], current: Profile, metric: Metric) -> RunsTest | None:
    """Return the test of a metric; None of fewer than three runs that have it.

    Each run is its median. If runs are alike but for chance, the current one lies around their mean
    by Student's t with runs - 1 degrees of freedom and variance s² (1 + 1 / runs), whatever the
    number of calls. How far another session lies, runs of one session do not show: a run that is
    further from them in time than they span has the floor of a host never calibrated with it.
    """
    medians = [_median(run, metric) for run in (*runs, current)]
    positive_medians = [value for value in medians[:-1] if value is not None]
    if medians[-1] is None or len(positive_medians) < MIN_RUNS:
        return None
    logs = [math.log(value) for value in positive_medians]
    mean, spread = statistics.fmean(logs), statistics.stdev(logs)
    far = _is_far(runs, current)
    between = uncalibrated().between if far else 0.0
    error = math.sqrt(spread**2 * (1 + 1 / len(positive_medians)) + 2 * between**2)
    estimate = math.log(medians[-1]) - mean
    worse = estimate if metric.better == "lower" else -estimate
    return RunsTest(
        Welch(worse, error, len(positive_medians) - 1),
        math.exp(mean),
        len(positive_medians),
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


def _median(run: Profile, metric: Metric) -> float | None:
    values = by_process(run, metric)
    return statistics.median(values) if values else None


def _is_far(runs: Sequence[Profile], current: Profile) -> bool:
    times = [datetime.fromisoformat(run.environment.created).timestamp() for run in runs]
    own = datetime.fromisoformat(current.environment.created).timestamp()
    return min(abs(own - time) for time in times) > max(times) - min(times)
