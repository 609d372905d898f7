"""Counting a target: on meta tensors where it can be, on real ones where it must be."""

from __future__ import annotations

import dataclasses

import msgspec
from torch import nn
from torch.nn.parameter import is_lazy

from torchgauge.analyze.elsewhere import elsewhere
from torchgauge.analyze.passes import Passes
from torchgauge.analyze.training_memory import OPTIMIZER, Trainable, training_memory
from torchgauge.errors import InputError, MeasurementError, TorchgaugeError
from torchgauge.measure import size as size_probe
from torchgauge.measure.description import describe
from torchgauge.measure.plan import measure_cost, opened
from torchgauge.measure.simulated_step import simulate
from torchgauge.model.cost import Cost
from torchgauge.model.count import Count
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.roofline import Roofs
from torchgauge.model.training_memory import TrainingMemory
from torchgauge.target.hygiene import module_of
from torchgauge.target.placement import Placement
from torchgauge.target.source import Source
from torchgauge.target.target import TargetRequest
from torchgauge.target.training import Training

LARGEST = 4 << 30  # bytes of a model that is counted on real tensors where meta ones fail


def cost_of(source: Source, *, backward: bool) -> Cost:
    """Return the cost of one call of a target as it is."""
    return measure_cost(opened(source), backward=backward)


@dataclasses.dataclass(frozen=True)
class CountOptions:
    """What to count: the backward pass too, and a training step's memory.

    Attributes:
        optimizer: Whose states and temporaries are part of that memory.
        train: Its loss; None takes the one that the model returns, else the mean of its outputs.
        autocast: "bf16" or "fp16" where the step runs under autocast.
        on: Devices for which time and memory are estimated.
    """

    backward: bool = False
    optimizer: str = OPTIMIZER
    train: Training | None = None
    autocast: str | None = None
    on: tuple[Roofs, ...] = ()


def count(request: TargetRequest, options: CountOptions, *, fall_back: bool) -> Count:
    """Return size and cost; with `fall_back` on the CPU where the request's device fails.

    Meta tensors have no values: code that reads one (`.item()`, experts chosen by the data) raises.
    Raises what loading raises, and MeasurementError where the call raises on the last device tried.
    """
    try:
        return _count(request, options)
    except TorchgaugeError as error:
        if not fall_back or not isinstance(error, MeasurementError):
            raise
        failed = error
    if (size := _bytes(request)) > LARGEST:
        raise failed
    real = dataclasses.replace(request, device="cpu")
    counted = _count(real, options)
    warning = MeasurementWarning(
        id="counted-on-cpu",
        message=f"Counted on real tensors ({size / 1e6:,.0f} MB): {failed.cause or failed.message}",
        probe="cost",
    )
    return msgspec.structs.replace(counted, warnings=(*counted.warnings, warning))


def _bytes(request: TargetRequest) -> int:
    """Return the model's bytes, found on meta; 0 for what cannot be loaded there."""
    try:
        model = opened(Source.of_request(request)).model
    except TorchgaugeError:
        return 0
    return size_probe.measure(model).bytes if module_of(model) is not None else 0


def _count(request: TargetRequest, options: CountOptions) -> Count:
    placement = opened(Source.of_request(request))
    module = module_of(placement.model)
    size = None if module is None else size_probe.measure(module, placement.target.files)
    cost = measure_cost(placement, backward=options.backward)
    inputs = sum(tensor.nbytes for _, tensor in placement.inputs.tensors())
    training, warnings = None, list[MeasurementWarning]()
    if module is not None and size is not None and options.backward:
        training = _training(request, placement, options, cost, warnings)
    return Count(
        target=describe(placement, training=options.backward),
        size=size,
        cost=cost,
        totals=cost.totals,
        training=training,
        elsewhere=()
        if size is None
        else tuple(elsewhere(cost, size, roofs, training, inputs=inputs) for roofs in options.on),
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
        passes = simulate(placement, options.train)
    except TorchgaugeError as error:
        if options.train is not None and isinstance(error, InputError):
            raise  # the loss that was asked for is none
        warnings.append(
            MeasurementWarning(
                id="training-memory-at-least",
                message="The most that a training step holds could not be estimated.",
                cause=error.cause or error.message,
                probe="cost",
            )
        )
    return memory_of(
        placement, passes, optimizer=options.optimizer, saved=cost.retained_for_backward or 0
    )


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
        inputs=sum(tensor.nbytes for _, tensor in placement.inputs.tensors()),
        passes=passes,
        activations=saved,
        optimizer=optimizer,
    )


def _trainable(module: nn.Module) -> list[Trainable]:
    """Return what has a gradient: each parameter once, as an optimizer is given them."""
    return [
        Trainable(tuple(one.shape), str(one.dtype).removeprefix("torch."), one.itemsize)
        for one in module.parameters()
        if one.requires_grad and not is_lazy(one)
    ]
