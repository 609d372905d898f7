"""Sweep a grid of settings, for a model or a target named on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.analyze.gate.limits import percentile_of
from torchgauge.analyze.statistics.percentiles import samples_needed
from torchgauge.analyze.sweep.constraints import parse
from torchgauge.api.preparation import measuring, require_torch
from torchgauge.errors import ModelError
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.records.sweep import Sweep
from torchgauge.sweeps.sweep_options import BY, SweepOptions

if TYPE_CHECKING:
    from torchgauge.sweeps.executor import Executor
    from torchgauge.targets.quantization import ModelWithInputs
    from torchgauge.targets.target import TargetRequest

# A cell has less than a profile's 30 s, since a grid has many.
BUDGET = 10.0


def sweep(
    model: Callable[..., Any],
    make_inputs: Any,
    grid: Mapping[str, Any],
    *,
    executor: str | Executor = "process",
    where: str = "",
    best: str | Sequence[str] | None = None,
    repeats: int = 1,
    every: bool = False,
    memory_limit: int | None = None,
    resume: str | Path | None = None,
    warmup: int | None = None,
    iterations: int | None = None,
    target_rel_error: float | None = None,
    budget: float | None = BUDGET,
    keep_going: bool = False,
    progress: bool | None = None,
) -> Sweep:
    """Measure a model under every combination of settings, each cell in its own process.

    `grid` has the axes: {"batch": [1, 2, 4], "precision": ["fp32", "bf16"]}; batch "auto" doubles.
    `make_inputs(batch, seq_len)` takes those of the two that the grid has, or is the inputs
    themselves. `where` are constraints ("p99<20ms and memory<2GB"), `best` the metrics to choose
    by. `repeats` processes measure each cell in turn. Unless `every` is set, batches are skipped
    once throughput saturates or memory would not fit. `memory_limit` limits the bytes of each
    process. `resume` is a file that stores finished cells. `budget` is in seconds for each process.
    `executor` is "process" or "ray". Where the model raises in every cell that was tried, so does
    this function, unless it is to `keep_going`.

    Raises InputError `axis-unknown`, `axis-invalid`, `constraint-invalid`, `metric-unknown`,
    `sweep-other`, `not-picklable`, and for what cannot be measured at all.

    Examples:
        >>> import torch, torchgauge as tg
        >>> grid = {"batch": [8]}
        >>> sweep = tg.sweep(torch.nn.Linear(4, 2), torch.ones(1, 4), grid, iterations=20)
        >>> [cell.settings.batch for cell in sweep.cells if cell.done]
        [8]
    """
    require_torch()
    from torchgauge.targets.modules import check_model
    from torchgauge.targets.quantization import ModelWithInputs

    check_model(model)
    options = SweepOptions(
        executor,
        where,
        BY if best is None else (best,) if isinstance(best, str) else tuple(best),
        repeats,
        every,
        memory_limit,
        None if resume is None else Path(resume).absolute(),
    )
    latency = LatencyOptions(
        warmup=warmup,
        iterations=iterations,
        target_rel_error=target_rel_error,
        budget=budget,
        independent=samples_needed(percentile_of(parse(where))),
    )
    subject = ModelWithInputs(model, make_inputs)
    result = sweep_request(subject, grid, options, latency, progress=progress)
    if not keep_going:
        _check_measured(result)
    return result


def _check_measured(result: Sweep) -> None:
    """Raise ModelError where no cell was measured since the model raised."""
    raised = [cell for cell in result.cells if cell.error == "forward-raised"]
    if raised and not any(cell.done for cell in result.cells):
        raise ModelError(
            "No cell was measured.",
            id="forward-raised",
            cause=raised[0].reason,
            remedy="keep_going=True returns the cells as they ended, each with its reason.",
        )


def sweep_request(
    subject: TargetRequest | ModelWithInputs,
    grid: Mapping[str, Any],
    options: SweepOptions,
    latency: LatencyOptions,
    *,
    progress: bool | None = None,
) -> Sweep:
    """Do the same for a target as the command line names it, or a model with its inputs."""
    require_torch()
    from torchgauge.sweeps.grid_sweep import sweep_grid

    with measuring(progress) as display:
        return sweep_grid(subject, grid, options, latency, display)
