"""Try improvements on a model given in Python, or on a target named on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from torchgauge.advice.budget import Budget
from torchgauge.api.gates import GateRequest, request_build
from torchgauge.api.preparation import measuring, prepared, require_torch
from torchgauge.records.advice import Advice, Trial
from torchgauge.temporary import temporary_folder

if TYPE_CHECKING:
    from torchgauge.measure.processes.waiting_process import Build
    from torchgauge.records.model_facts import Facts
    from torchgauge.targets.training.training import Training


def advise(
    model: Callable[..., Any],
    inputs: Any,
    *,
    metric: Callable[[Any], float] | None = None,
    tolerance: float | None = None,
    candidates: Sequence[str] | None = None,
    budget: float | None = None,
    latency_limit: float | None = None,
    train: Training | bool | None = None,
    progress: bool | None = None,
) -> Advice:
    """Try improvements on copies of a model, and return those that were confirmed, with their code.

    Each is applied in fresh processes, which get the model by value; yours is not changed. Outputs
    may differ by `tolerance` of their largest magnitude (by default by what the arithmetic
    explains); with `metric(outputs)` that number may change by `tolerance` (by default 1 %).
    `candidates` are ids, by default all. `budget` is in seconds for everything, loading and
    compilation included: a candidate that would not finish within it is untried, with its expected
    duration, and a running one is stopped 5 % and 2 s later. With `latency_limit`, in seconds,
    larger batches are tried. `train` measures a training step.

    Raises InputError `candidate-unknown`, `not-picklable`; MeasurementError `budget-short` if the
    budget does not even suffice to look at the model; and what running the model raises.
    """
    deadline = Budget(budget)
    source, options = prepared(model, inputs, train=train)
    from torchgauge.measure.processes.waiting_process import Build

    return _advise(
        Build(source, options, None, "original"), metric, tolerance, candidates, deadline,
        latency_limit, progress=progress,
    )  # fmt: skip


def advise_request(
    request: GateRequest,
    *,
    metric: str | None = None,
    tolerance: float | None = None,
    candidates: Sequence[str] | None = None,
    budget: float | None = None,
    latency_limit: float | None = None,
    progress: bool | None = None,
    spent: float = 0.0,
) -> Advice:
    """Do the same for a target as the command line names it; `metric` is file.py:function.

    `spent` seconds of the budget were gone before the call.

    Raises InputError `candidate-unknown`, what finding the metric raises, and as `advise`.
    """
    deadline = Budget(budget, spent=spent)
    require_torch()
    from torchgauge.targets.training.named_metric import NamedMetric

    named = None if metric is None else NamedMetric.from_spec(metric)
    build = request_build(request, "original")
    return _advise(
        build, named, tolerance, candidates, deadline, latency_limit,
        name=metric or "", progress=progress,
    )  # fmt: skip


def _advise(
    build: Build,
    metric: Callable[[Any], float] | None,
    tolerance: float | None,
    candidates: Sequence[str] | None,
    budget: Budget,
    latency_limit: float | None,
    *,
    name: str = "",
    progress: bool | None = None,
) -> Advice:
    from torchgauge.advice.candidates.every import select_candidates
    from torchgauge.advice.experiment import Experiment
    from torchgauge.advice.world import Processes
    from torchgauge.analyze.advice.speed_up import ALPHA, METRIC_TOLERANCE, MINIMUM_GAIN
    from torchgauge.device.environment import environment
    from torchgauge.measure.processes.fork_server import forking

    if metric is not None and tolerance is None:
        tolerance = METRIC_TOLERANCE
    selected = select_candidates(candidates)
    # A cache of its own: compiling is cold in the check, and done once for all processes after it.
    with measuring(progress) as display, temporary_folder() as cache:
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
        with forking(build.spec, variables) as server:
            world = Processes(
                build, metric, latency_limit, variables=variables, budget=budget, server=server
            )
            display.start("looking at the model")
            facts = world.facts()
            world.pace = _pace(facts)
            result = Experiment(world, selected, display, tolerance=tolerance, budget=budget).run()
    target = facts.target
    if build.spec:
        target = msgspec.structs.replace(target, spec=build.spec)
    from torchgauge.targets.names import name_of

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
        metric=name or ("" if metric is None else name_of(metric)),
        budget=budget.seconds,
        duration=budget.elapsed(),
        interrupted=result.interrupted,
        warnings=facts.warnings,
    )


def _call_seconds(trials: Sequence[Trial], step_seconds: float) -> float:
    """Return a call's typical seconds: as timed beside the first candidate, else as looked at."""
    timed = (trial.speed_up for trial in trials if trial.id != "inference-mode")
    return next((timing.before for timing in timed if timing is not None), step_seconds)


def _pace(facts: Facts) -> Any:
    """Return how blocks are timed: one process after the other where four would not fit."""
    from torchgauge.gates.paired_gate import PROCESS_MEMORY
    from torchgauge.measure.forward import free_bytes
    from torchgauge.measure.latency.blocks import Pace

    free = free_bytes(facts.target.device)
    # Twice, since a candidate may need more than the original.
    needed = 4 * (2 * (facts.memory or 0) + PROCESS_MEMORY)
    return Pace(concurrent=free is None or needed < free)
