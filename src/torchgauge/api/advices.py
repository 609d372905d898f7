"""Try improvements on a model given in Python, or on a target named on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torchgauge.advice.budget import AdviceOptions, Budget
from torchgauge.api.preparation import measuring, require_torch
from torchgauge.records.advice import Advice

if TYPE_CHECKING:
    from torchgauge.measure.processes.waiting_process import Build
    from torchgauge.targets.target import TargetRequest
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

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> advice = tg.advise(model, x, candidates=["inference-mode"], budget=15)
        >>> [trial.id for trial in advice.trials]
        ['inference-mode']
    """
    options = AdviceOptions(metric, tolerance, candidates, latency_limit, Budget(budget))
    require_torch()
    from torchgauge.gates.builds import object_build

    return _advised(object_build("original", (model, inputs), train), options, progress)


def advise_request(
    request: TargetRequest, options: AdviceOptions, *, progress: bool | None = None
) -> Advice:
    """Do the same for a target as the command line names it. Raises as `advise`."""
    require_torch()
    from torchgauge.gates.builds import request_build

    return _advised(request_build(request, "original"), options, progress)


def _advised(build: Build, options: AdviceOptions, progress: bool | None) -> Advice:
    from torchgauge.advice.experiment import advised

    with measuring(progress) as display:
        return advised(build, options, display)
