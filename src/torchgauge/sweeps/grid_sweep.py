"""A sweep from its request to its record: every cell of a grid, measured or taken over."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import torch

from torchgauge.analyze.sweep.constraints import best, front, parse
from torchgauge.analyze.sweep.scaling import scaling
from torchgauge.device.environment import environment
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.progress import Progress
from torchgauge.records.environment import Environment
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.sweep import Cell, CellSettings, Sweep
from torchgauge.records.target import TargetDescription
from torchgauge.sweeps.executor import executor as named_executor
from torchgauge.sweeps.grid import Grid
from torchgauge.sweeps.job import Job
from torchgauge.sweeps.journal import Journal
from torchgauge.sweeps.run import Run
from torchgauge.sweeps.sweep_options import SweepOptions
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.inputs.tensors import strided
from torchgauge.targets.modules import check_tree
from torchgauge.targets.precisions import name_of
from torchgauge.targets.quantization import ModelWithInputs, Variant
from torchgauge.targets.target import TargetRequest

NOT_FINITE = "output-not-finite"


def result(
    run: Run,
    cells: Sequence[Cell],
    options: SweepOptions,
    environment: Environment,
    unknown: TargetDescription,
) -> Sweep:
    """Return the record of a run; `unknown` describes a target of which no cell ran.

    Raises InputError as `constraints.parse`.
    """
    limits, journal_warning = parse(options.where), run.journal.warning
    target = next((cell.target for cell in cells if cell.target is not None), unknown)
    return Sweep(
        target=target,
        environment=environment,
        axes=run.grid.as_texts(),
        cells=tuple(cells),
        front=front(cells),
        best=tuple(best(cells, metric, limits, environment) for metric in options.best),
        scaling=scaling(cells),
        constraints=options.where,
        repeats=options.repeats,
        executor=run.executor.name,
        duration=sum(cell.duration or 0.0 for cell in cells),
        interrupted=run.interrupted,
        warnings=(*_warnings(cells), *(() if journal_warning is None else (journal_warning,))),
    )


def _warnings(cells: Sequence[Cell]) -> Iterator[MeasurementWarning]:
    machines = {cell.machine for cell in cells if cell.machine}
    if len(machines) > 1:
        message = f"Cells were measured on {len(machines)} kinds of machines: times differ by that."
        yield MeasurementWarning(id="several-machines", message=message, probe="sweep")
    broken = [cell for cell in cells if any(w.id == NOT_FINITE for w in cell.warnings)]
    if broken:
        labels = "; ".join(cell.settings.label for cell in broken)
        message = (
            f"Outputs hold NaN or infinities in {len(broken)} of {len(cells)} cells: {labels}."
        )
        cause = "Their figures are those of a computation that broke down, or of a mask."
        yield MeasurementWarning(id=NOT_FINITE, message=message, cause=cause, probe="sweep")


def sweep_grid(
    subject: TargetRequest | ModelWithInputs,
    axes: Mapping[str, Any],
    options: SweepOptions,
    latency: LatencyOptions,
    progress: Progress,
) -> Sweep:
    """Measure a target or model under all settings, and return the record.

    Raises InputError `axis-unknown`, `axis-invalid`, `sweep-other`, and for what cannot be measured
    at all.
    """
    grid, local_environment = Grid.from_axes(axes), environment()
    executor = options.executor
    if isinstance(executor, str):
        executor = named_executor(executor)
    device = subject.device if isinstance(subject, TargetRequest) else None
    machine = local_environment.machine.fingerprint if executor.is_local else executor.name
    names = _subject_identity(subject)
    identity = names | _measurement_identity(latency, options.memory_limit, device) | {
        "machine": machine, "torch": local_environment.software.torch
    }  # fmt: skip

    def make_job(settings: CellSettings, number: int) -> Job:
        changes = msgspec.structs.asdict(settings)
        changes["device"] = settings.device or device
        source = Variant(subject, memory_limit=options.memory_limit, **changes)
        return Job(settings, number, source, latency)

    unknown = TargetDescription(
        spec=names["target"], kind="", name=names["target"],
        device=device or "cpu", precision="native", precision_method="native",
    )  # fmt: skip
    with Journal(options.resume, identity) as journal:
        run = Run(
            grid, make_job, executor, journal, progress,
            repeats=options.repeats, measure_all=options.measure_all,
        )  # fmt: skip
        cells = run.all()
    return result(run, cells, options, run.environment or local_environment, unknown)


def _subject_identity(subject: TargetRequest | ModelWithInputs) -> dict[str, str]:
    """Name what is swept: a target by its texts, an object by its class and its tensors' form.

    Of a function that makes inputs only the name is known.
    """
    if isinstance(subject, TargetRequest):
        return {
            "target": subject.spec,
            "inputs": " ".join(map(str, subject.inputs)),
            "weights": str(subject.weights or ""),
        }
    module = module_of(subject.model)
    state: dict[str, Any] = {}
    if module is not None:
        check_tree(module)
        state = module.state_dict()
    inputs = (
        name_of(subject.make)
        if callable(subject.make)
        else _form(dict(Inputs.of(subject.make).tensors()))
    )
    return {"target": name_of(subject.model), "tensors": _form(state), "inputs": inputs}


def _measurement_identity(
    latency: LatencyOptions, memory_limit: int | None, device: str | None
) -> dict[str, str]:
    """Return what finished cells must have been measured with to be taken over."""
    plan = latency.plan
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


def _form(tensors: Mapping[str, Any]) -> str:
    """Return a text that is equal for tensors of the same names, shapes and dtypes."""
    forms = [
        (name, [tuple(part.shape) for part in strided(value)], value.dtype)
        if isinstance(value, torch.Tensor)
        else (name, None, None)
        for name, value in tensors.items()
    ]
    return hashlib.sha256(repr(forms).encode()).hexdigest()[:12]
