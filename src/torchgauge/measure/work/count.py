"""Counting a target: size and cost, and a training step's memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec
from torch import nn
from torch.nn.parameter import is_lazy

from torchgauge.analyze.memory.training_memory import OPTIMIZER, Trainable, training_memory
from torchgauge.analyze.memory.training_passes import Passes
from torchgauge.analyze.onnx.graph_cost import graph_facts
from torchgauge.analyze.work.other_device import estimate_on_device
from torchgauge.errors import InputError, ModelError, TorchgaugeError
from torchgauge.measure.derived import no_parameters
from torchgauge.measure.description import describe
from torchgauge.measure.forward import opened
from torchgauge.measure.memory.simulated_step import simulate
from torchgauge.measure.work import size as size_probe
from torchgauge.measure.work.count_options import CountOptions
from torchgauge.measure.work.counted import countable_with_values, counted, measure_cost, noted
from torchgauge.measure.work.cuda_kernels import CudaKernels
from torchgauge.records.memory.training_memory import TrainingMemory
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.size import Count
from torchgauge.targets.builds.source import Source
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.tensors import nbytes
from torchgauge.targets.placement import Placement, countable_on
from torchgauge.targets.target import Target, TargetRequest
from torchgauge.targets.training.named_training import named_training


@dataclasses.dataclass(frozen=True)
class CountSource(Source):
    """What is counted in a process of its own, and how."""

    target: TargetRequest
    options: CountOptions = dataclasses.field(default_factory=CountOptions)


def cost_of(source: Source, *, backward: bool) -> Cost:
    """Return the cost of one call of an object; on the CPU where it needs values that meta lacks.

    Raises MeasurementError where the call raises on the last device tried.
    """
    if isinstance(source.target, Target):
        source = dataclasses.replace(source, device=countable_on(source.target))
    return counted(source, opened(source), backward=backward).cost


def count(
    request: TargetRequest, options: CountOptions, in_fresh_process: Callable[[CountSource], Count]
) -> Count:
    """Return size and cost, with the loss that the request names.

    With `options.fall_back` whatever fails on the meta device, while the model is built or called,
    is done again on the CPU `in_fresh_process`: here tables that the model's code keeps may have
    been made of meta tensors.

    Raises what loading raises, and MeasurementError where the call raises on the last device tried.
    """
    on_cpu = CountSource(
        dataclasses.replace(request, device="cpu"),
        options=dataclasses.replace(options, fall_back=False),
    )
    if request.loss is not None:  # a mistake in it shows now, not after the model was built
        train = named_training(request.loss, None, precision=None, device="cpu")
        options = dataclasses.replace(options, train=train)
    source = Source.of_request(request)
    placement = None
    try:
        placement = opened(source)
        cost = measure_cost(placement, backward=options.backward, flash=options.flash)
    except TorchgaugeError as error:
        fall_back = options.fall_back and countable_with_values(error, source.device, placement)
        if not fall_back:
            if placement is None or not isinstance(error, ModelError) or error.ran is None:
                raise
            options = dataclasses.replace(options, backward=False, on=())
            return _count(request, placement, error.ran, options)
        failed = error
    else:
        request = dataclasses.replace(request, device=placement.device)
        return _count(request, placement, cost, options)
    record = in_fresh_process(on_cpu)
    size = 0 if record.size is None else record.size.bytes
    return msgspec.structs.replace(record, cost=noted(record.cost, failed, size))


def _count(
    request: TargetRequest, placement: Placement, cost: Cost, options: CountOptions
) -> Count:
    module = module_of(placement.model)
    graph = placement.target.graph
    # The placed model is the one that may have been moved.
    size = size_probe.size_of(dataclasses.replace(placement.target, model=placement.model))
    inputs = sum(nbytes(tensor) for _, tensor in placement.inputs.tensors())
    training, warnings = None, list[MeasurementWarning]()
    if size is None and graph is not None:
        warnings.append(no_parameters(placement.target, estimates=bool(options.on)))
    if module is not None and size is not None and options.backward:
        training = _training(request, placement, options, cost, warnings)
    return Count(
        target=describe(placement, training=options.backward),
        size=size,
        cost=cost,
        totals=cost.totals,
        training=training,
        other_devices=()
        if size is None
        else tuple(
            estimate_on_device(cost, size, roofs, training, inputs=inputs) for roofs in options.on
        ),
        graph=None if graph is None else graph_facts(graph),
        warnings=tuple(warnings),
    )


def _training(
    request: TargetRequest,
    placement: Placement,
    options: CountOptions,
    cost: Cost,
    warnings: list[MeasurementWarning],
) -> TrainingMemory:
    """Return the memory of a training step, with labels where the target knows them."""
    source = Source(
        dataclasses.replace(request, training=True),
        request.device,
        options.autocast or request.precision,
        training=options.autocast is not None,
    )
    passes = None
    try:
        placement = opened(source)
        kernels = CudaKernels(flash=options.flash) if options.on else None
        passes = simulate(placement, options.train, kernels)
    except TorchgaugeError as error:
        unfit = isinstance(error, InputError) and not isinstance(error, ModelError)
        if options.train is not None and unfit:
            raise  # the loss that was asked for is none
        warnings.append(
            MeasurementWarning(
                id="training-memory-at-least",
                message="The peak memory of a training step could not be estimated.",
                cause=error.cause or error.message,
                probe="cost",
            )
        )
    memory = memory_of(
        placement, passes, optimizer=options.optimizer, saved=cost.retained_for_backward or 0
    )
    return msgspec.structs.replace(memory, kernels="cuda" if options.on else "cpu")


def memory_of(
    placement: Placement, passes: Passes | None, *, optimizer: str = OPTIMIZER, saved: int = 0
) -> TrainingMemory:
    """Return the memory of a training step of a module whose passes were simulated.

    `saved` is bytes that operators save for the backward pass, for where they were not.
    """
    module = module_of(placement.model)
    assert module is not None  # noqa: S101 - only modules are trained
    return training_memory(
        size_probe.measure(module),
        _trainable(module),
        inputs=sum(nbytes(tensor) for _, tensor in placement.inputs.tensors()),
        passes=passes,
        activations=saved,
        optimizer=optimizer,
    )


def _trainable(module: nn.Module) -> list[Trainable]:
    """Return what has a gradient: each parameter once, as an optimizer is given them."""
    return [
        Trainable(
            tuple(parameter.shape), str(parameter.dtype).removeprefix("torch."), parameter.itemsize
        )
        for parameter in module.parameters()
        if parameter.requires_grad and not is_lazy(parameter)
    ]
