"""Measure one figure alone: latency, memory, size or work; diagnose the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchgauge.analyze.statistics.percentiles import samples_needed
from torchgauge.api.preparation import measuring, require_torch
from torchgauge.records.doctor import Diagnosis
from torchgauge.records.latency.latency import Latency
from torchgauge.records.memory.memory import Memory
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.energy import Energy
from torchgauge.records.work.size import Count, Size
from torchgauge.turn import turn

if TYPE_CHECKING:
    from torchgauge.measure.work.count_options import CountOptions
    from torchgauge.targets.target import TargetRequest
    from torchgauge.targets.training.training import Training


def measure_latency(
    model_or_callable: Callable[..., Any],
    inputs: Any = None,
    *,
    train: Training | bool | None = None,
    warmup: int | None = None,
    iterations: int | None = None,
    processes: int | None = None,
    target_rel_error: float | None = None,
    budget: float | None = None,
    preprocess: Callable[[Any], Any] | None = None,
    postprocess: Callable[[Any], Any] | None = None,
    cold_cache: bool = False,
    percentile: float | None = None,
    device: str | None = None,
    progress: bool | None = None,
) -> Latency:
    """Time calls in this process and in fresh ones, and return the latency.

    Args:
        model_or_callable: The model, or any function.
        inputs: As `profile` takes them, or what `preprocess` takes.
        train: A training step to time instead of inference.
        warmup: Exactly so many calls are left out; None detects the end of the warm-up.
        iterations: Exactly so many calls after the warm-up, in this process unless `processes` is
            set.
        processes: Fresh processes to start; 1 is this one alone. None: as the budget allows.
        target_rel_error: A single process samples until its median is known to ± this (0.01).
        budget: Seconds of sampling in all (default 5; 30 for one process alone).
        preprocess: Makes the model's inputs from `inputs`, timed as a stage of an end-to-end
            latency.
        postprocess: Takes the outputs, timed likewise.
        cold_cache: Overwrite the last-level cache before each call.
        percentile: Sample until there are enough samples for the interval of this one (0.99).
        device: Where to run; None leaves the model where it is.
        progress: Show progress; None does so on a terminal.

    Ctrl-C returns what was measured, with `stop` "interrupted". Raises InputError for options that
    make no sense, MeasurementError where the call raises.

    Examples:
        >>> import torch, torchgauge as tg
        >>> latency = tg.measure_latency(torch.nn.Linear(4, 2), torch.ones(8, 4), iterations=50)
        >>> latency.min <= latency.median <= latency.max
        True
    """
    require_torch()
    from torchgauge.measure.latency.latency_options import LatencyOptions
    from torchgauge.measure.plan import measure_latency as measure
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.training.training import Training

    source = Source.of_object(
        model_or_callable, inputs, device=device, training=bool(train), raw=preprocess is not None
    )
    options = LatencyOptions(
        Training.resolve(train), warmup, iterations, processes, target_rel_error, budget,
        samples_needed(percentile), preprocess, postprocess, cold_cache,
    )  # fmt: skip
    with measuring(progress) as display:
        display.start("latency")
        return measure(source, options, display)


def measure_memory(
    model: Callable[..., Any],
    inputs: Any = None,
    *,
    train: Training | bool | None = None,
    device: str | None = None,
) -> Memory:
    """Measure the bytes of tensors alive during one step, and what the peak consists of.

    Raises MeasurementError where the step raises, memory runs out or another profiler is active.

    Examples:
        >>> import torch, torchgauge as tg
        >>> memory = tg.measure_memory(torch.nn.Linear(4, 2), torch.ones(8, 4))
        >>> memory.parameters, memory.inputs  # bytes
        (40, 128)
    """
    require_torch()
    from torchgauge.measure.forward import opened
    from torchgauge.measure.memory.memory import measure
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.training.training import Training

    source = Source.of_object(model, inputs, device=device, training=bool(train))
    with turn():
        return measure(opened(source), train=Training.resolve(train))


def measure_energy(
    model: Callable[..., Any],
    inputs: Any = None,
    *,
    train: Training | bool | None = None,
    device: str | None = None,
) -> Energy:
    """Measure the joules of a call by the counters of processors and GPUs (extra `energy`).

    Windows of calls last as long as the counters' steps and their scatter ask for, 30 s in all at
    most. Where a counter cannot be read, as in a virtual machine, the energy is unknown, with the
    `reason`. Raises MissingExtraError; MeasurementError where the call raises.

    Examples:
        >>> import torch, torchgauge as tg
        >>> energy = tg.measure_energy(torch.nn.Linear(4, 2), torch.ones(8, 4))
        >>> energy.joules is not None or energy.reason != ""
        True
    """
    from torchgauge.device.energy import check_available

    check_available()
    require_torch()
    from torchgauge.measure.forward import opened
    from torchgauge.measure.work.energy import measure
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.training.training import Training

    source = Source.of_object(model, inputs, device=device, training=bool(train))
    with turn():
        return measure(opened(source), Training.resolve(train))


def measure_size(model: object) -> Size:
    """Count parameters, buffers and bytes, each tensor once; nothing is run.

    Raises InputError `not-a-module` for what has no parameters that could be counted.

    Examples:
        >>> import torch, torchgauge as tg
        >>> size = tg.measure_size(torch.nn.Linear(4, 2))
        >>> size.parameters, size.bytes
        (10, 40)
    """
    require_torch()
    from torchgauge.measure.work.size import measure

    return measure(model)


def count_cost(model: Callable[..., Any], inputs: Any = None, *, backward: bool = False) -> Cost:
    """Count FLOPs and bytes of one call by layer and operator, from the shapes that it runs with.

    The model runs on the device where it is; on meta or fake tensors nothing is computed. If the
    code reads a value, which meta tensors do not have, a copy on the CPU with random values is
    counted (up to 4 GiB), with the warning `counted-on-cpu`. With `backward` the model is in
    training mode, else in evaluation mode, and a gradient of ones is sent into every differentiable
    output (no loss is counted). An operator without a formula is in `unknown`.

    Raises MeasurementError where the call raises.

    Examples:
        >>> import torch, torchgauge as tg
        >>> cost = tg.count_cost(torch.nn.Linear(4, 2), torch.ones(8, 4))
        >>> cost.macs, cost.coverage
        (64, 1.0)
    """
    require_torch()
    from torchgauge.measure.work.count import cost_of
    from torchgauge.targets.builds.source import Source

    with turn():
        return cost_of(Source.of_object(model, inputs, training=backward), backward=backward)


def count_request(request: TargetRequest, options: CountOptions) -> Count:
    """Count the size and the cost of a target named as on the command line.

    With `options.backward` the memory of a training step is part of it. A trusted file is loaded
    and counted in a process of its own. Raises InputError `loss-unknown`, and what loading raises.
    """
    require_torch()
    from torchgauge.measure.processes.separate_process import count_in_separate_process
    from torchgauge.measure.work.count import CountSource, count

    with turn():
        if request.in_own_process:
            return count_in_separate_process(CountSource(request, options=options))
        return count(request, options, count_in_separate_process)


def diagnose(*, quick: bool = False, progress: bool | None = None) -> Diagnosis:
    """Check this machine for what distorts timings; `quick` leaves out the A/A run of 10 s.

    Examples:
        >>> import torchgauge as tg
        >>> diagnosis = tg.diagnose(quick=True)
        >>> "threads" in [check.id for check in diagnosis.checks]
        True
    """
    from torchgauge.measure.machine.doctor import diagnose as examine

    with measuring(progress) as display:
        return examine(quick=quick, progress=display)
