"""Advice from a build to its record: facts of the model, the experiment, and what it gained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from torchgauge.advice.budget import AdviceOptions
from torchgauge.advice.candidates.every import select_candidates
from torchgauge.advice.experiment import Experiment
from torchgauge.advice.world import Processes
from torchgauge.analyze.advice.speed_up import ALPHA, METRIC_TOLERANCE, MINIMUM_GAIN
from torchgauge.device.environment import environment
from torchgauge.measure.latency.blocks import ABBA, fitting_pace
from torchgauge.measure.processes.fork_server import forking
from torchgauge.measure.processes.waiting_process import Build
from torchgauge.progress import Progress
from torchgauge.records.advice import Advice, Trial
from torchgauge.targets.precisions import name_of
from torchgauge.targets.training.named_metric import NamedMetric
from torchgauge.temporary import temporary_folder


def advised(build: Build, options: AdviceOptions, progress: Progress) -> Advice:
    """Try improvements on a build, and return which of them held.

    Raises InputError `candidate-unknown`, what finding the metric raises; MeasurementError
    `budget-short`; and what running the model raises.
    """
    metric, metric_name = _metric(options)
    tolerance, budget = options.tolerance, options.budget
    if metric is not None and tolerance is None:
        tolerance = METRIC_TOLERANCE
    selected = select_candidates(options.candidates)
    # A cache of its own: compiling is cold in the check, and done once for all processes after it.
    with temporary_folder() as cache:
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
        with forking(build.spec, variables) as server:
            world = Processes(
                build,
                metric,
                options.latency_limit,
                variables=variables,
                budget=budget,
                server=server,
            )
            progress.start("inspecting the model")
            facts = world.facts()
            # Twice, since a candidate may need more than the original.
            world.pace = fitting_pace(facts.target.device, 2 * ABBA * (facts.memory or 0))
            result = Experiment(world, selected, progress, tolerance=tolerance, budget=budget).run()
    target = facts.target
    if build.spec:
        target = msgspec.structs.replace(target, spec=build.spec)
    return Advice(
        target=target,
        environment=environment(),
        trials=result.trials,
        combinations=result.combinations,
        best=result.best,
        minimum_gain=MINIMUM_GAIN,
        alpha=ALPHA,
        latency=_call_seconds(result.trials, facts.step),
        memory=facts.memory,
        metric=metric_name,
        budget=budget.seconds,
        duration=budget.elapsed(),
        interrupted=result.interrupted,
        warnings=facts.warnings,
    )


def _metric(options: AdviceOptions) -> tuple[Callable[[Any], float] | None, str]:
    """Return the metric and its name, "" where outputs are compared."""
    if isinstance(options.metric, str):
        return NamedMetric.from_spec(options.metric), options.metric
    return options.metric, "" if options.metric is None else name_of(options.metric)


def _call_seconds(trials: Sequence[Trial], step_seconds: float) -> float:
    """Return a call's typical seconds: as timed beside the first candidate, else as looked at."""
    timed = (trial.speed_up for trial in trials if trial.id != "inference-mode")
    return next((timing.before for timing in timed if timing is not None), step_seconds)
