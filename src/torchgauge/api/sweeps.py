"""Sweep a grid of settings, for a model or a target named on the command line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.api.preparation import measuring, require_torch, timing_options
from torchgauge.records.sweep import CellSettings, Sweep

if TYPE_CHECKING:
    from torchgauge.sweeps.executor import Executor
    from torchgauge.sweeps.job import Job
    from torchgauge.targets.target import TargetRequest
    from torchgauge.targets.variant import ModelWithInputs

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
    progress: bool | None = None,
) -> Sweep:
    """Measure a model under every combination of settings, each cell in its own process.

    `grid` has the axes: {"batch": [1, 2, 4], "precision": ["fp32", "bf16"]}; batch "auto" doubles.
    `make_inputs(batch, seq_len)` takes those of the two that the grid has, or is the inputs
    themselves. `where` are constraints ("p99<20ms and memory<2GB"), `best` the metrics to choose
    by. `repeats` processes measure each cell in turn. Unless `every` is set, batches are skipped
    once throughput saturates or memory would not fit. `memory_limit` limits the bytes of each
    process. `resume` is a file that stores finished cells. `budget` is in seconds for each process.
    `executor` is "process" or "ray".

    Raises InputError `axis-unknown`, `axis-invalid`, `constraint-invalid`, `metric-unknown`,
    `sweep-other`, `not-picklable`, and for what cannot be measured at all.
    """
    require_torch()
    from torchgauge.targets.variant import ModelWithInputs

    subject = ModelWithInputs(model, make_inputs)
    timing = {
        "warmup": warmup,
        "iterations": iterations,
        "target_rel_error": target_rel_error,
        "budget": budget,
    }
    return _sweep(
        subject, _subject_identity(model, make_inputs), grid, None, executor=executor, where=where,
        best=best, repeats=repeats, every=every, memory_limit=memory_limit, resume=resume,
        timing=timing, progress=progress,
    )  # fmt: skip


def sweep_request(
    target: str,
    grid: Mapping[str, Any],
    *,
    inputs: tuple[str, ...] = (),
    weights: Path | None = None,
    device: str = "auto",
    trust: bool = False,
    **options: Any,
) -> Sweep:
    """Do the same for a target as the command line names it; other `options` as of `sweep`."""
    require_torch()
    from torchgauge.targets.target import TargetRequest

    request = TargetRequest(spec=target, inputs=inputs, weights=weights, trust=trust)
    timing = {
        name: options.pop(name, None)
        for name in ("warmup", "iterations", "target_rel_error", "budget")
    }
    identity = {"target": target, "inputs": " ".join(inputs), "weights": str(weights or "")}
    return _sweep(request, identity, grid, device, timing=timing, **options)


def _sweep(
    subject: TargetRequest | ModelWithInputs,
    subject_identity: dict[str, str],
    axes: Mapping[str, Any],
    device: str | None,
    *,
    executor: str | Executor,
    where: str,
    best: str | Sequence[str] | None,
    repeats: int,
    every: bool,
    memory_limit: int | None,
    resume: str | Path | None,
    timing: dict[str, Any],
    progress: bool | None,
) -> Sweep:
    from torchgauge.analyze.gate.limits import percentile_of
    from torchgauge.analyze.sweep.constraints import cell_metric, parse
    from torchgauge.device.environment import environment
    from torchgauge.measure.latency.latency_options import LatencyOptions
    from torchgauge.records.target import TargetDescription
    from torchgauge.sweeps.executor import executor as named
    from torchgauge.sweeps.grid import Grid
    from torchgauge.sweeps.journal import Journal
    from torchgauge.sweeps.result import BY, result
    from torchgauge.sweeps.run import Run

    grid, local_environment = Grid.from_axes(axes), environment()
    by = BY if best is None else (best,) if isinstance(best, str) else tuple(best)
    for metric in by:
        cell_metric(metric)
    options = LatencyOptions(**timing_options(percentile=percentile_of(parse(where)), **timing))
    doer = named(executor) if isinstance(executor, str) else executor
    machine = local_environment.machine.fingerprint if doer.is_local else doer.name
    identity = subject_identity | _identity(options, memory_limit, device) | {
        "machine": machine, "torch": local_environment.software.torch
    }  # fmt: skip

    def make_job(settings: CellSettings, number: int) -> Job:
        return _job(subject, settings, number, options, memory_limit, device)

    path = None if resume is None else Path(resume).absolute()
    with Journal(path, identity) as journal, measuring(progress) as display:
        run = Run(grid, make_job, doer, journal, display, repeats=repeats, measure_all=every)
        cells = run.all()
    unknown = TargetDescription(
        spec=subject_identity["target"], kind="", name=subject_identity["target"],
        device=device or "cpu", precision="native", precision_method="native",
    )  # fmt: skip
    return result(
        cells, run.environment or local_environment, unknown, axes=grid.as_texts(),
        constraints=where, by=by, repeats=repeats, executor=doer.name, interrupted=run.interrupted,
        warning=journal.warning,
    )  # fmt: skip


def _job(
    subject: TargetRequest | ModelWithInputs,
    settings: CellSettings,
    number: int,
    options: Any,
    memory_limit: int | None,
    device: str | None,
) -> Job:
    from torchgauge.sweeps.job import Job
    from torchgauge.targets.variant import Variant

    source = Variant(
        subject,
        device=settings.device or device,
        precision=settings.precision,
        batch=settings.batch,
        compile=settings.compile,
        channels_last=settings.channels_last,
        threads=settings.threads,
        interop=settings.interop,
        seq_len=settings.seq_len,
        memory_limit=memory_limit,
    )
    return Job(settings, number, source, options)


def _identity(options: Any, memory_limit: int | None, device: str | None) -> dict[str, str]:
    """Return what finished cells must have been measured with to be taken over."""
    plan = options.plan
    measured_with = {
        "device": device,
        "memory limit": memory_limit,
        "warm-up": plan.warmup,
        "iterations": plan.iterations,
        "precision of the median": plan.target_rel_error,
        "budget": plan.budget,
        "independent samples, which a limit on a percentile asks for,": plan.independent or None,
    }
    return {name: str(value) for name, value in measured_with.items() if value is not None}


def _subject_identity(model: Callable[..., Any], make_inputs: Any) -> dict[str, str]:
    """Name what the caller holds: the model's class, what its tensors look like, and the inputs'.

    Of a function that makes inputs only the name is known.
    """
    from torchgauge.targets.hygiene import module_of
    from torchgauge.targets.inputs.inputs import Inputs

    module = module_of(model)
    state: dict[str, Any] = {} if module is None else module.state_dict()
    has_factory = callable(make_inputs)
    inputs = _name(make_inputs) if has_factory else _form(dict(Inputs.of(make_inputs).tensors()))
    return {"target": _name(model), "tensors": _form(state), "inputs": inputs}


def _name(subject: Any) -> str:
    from torchgauge.targets.names import name_of

    return name_of(subject)


def _form(tensors: Mapping[str, Any]) -> str:
    shapes = repr([(key, getattr(t, "shape", None), getattr(t, "dtype", None))
                   for key, t in tensors.items()])  # fmt: skip
    return hashlib.sha256(shapes.encode()).hexdigest()[:12]
