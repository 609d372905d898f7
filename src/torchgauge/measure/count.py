"""Counting a target: size and cost, and a training step's memory."""

from __future__ import annotations

import dataclasses

from torch import nn
from torch.nn.parameter import is_lazy

from torchgauge.analyze.elsewhere import elsewhere
from torchgauge.analyze.training_memory import OPTIMIZER, Trainable, training_memory
from torchgauge.measure import size as size_probe
from torchgauge.measure.counted import counted, measure_cost
from torchgauge.measure.description import describe
from torchgauge.measure.forward import opened
from torchgauge.model.cost import Cost
from torchgauge.model.count import Count
from torchgauge.model.roofline import Roofs
from torchgauge.model.training_memory import TrainingMemory
from torchgauge.target.hygiene import module_of
from torchgauge.target.placement import Placement, countable_on
from torchgauge.target.source import Source
from torchgauge.target.target import Target, TargetRequest


def cost_of(source: Source, *, backward: bool) -> Cost:
    """Return the cost of one call of an object; on the CPU where it needs values that meta lacks.

    Raises MeasurementError where the call raises on the last device tried.
    """
    if isinstance(source.what, Target):
        source = dataclasses.replace(source, device=countable_on(source.what))
    return counted(source, opened(source), backward=backward).cost


@dataclasses.dataclass(frozen=True)
class CountOptions:
    """What to count: the backward pass too, and a training step's memory with `optimizer`.

    `on` are devices for which time and memory are estimated.
    """

    backward: bool = False
    optimizer: str = OPTIMIZER
    on: tuple[Roofs, ...] = ()


def count(request: TargetRequest, options: CountOptions, *, fall_back: bool) -> Count:
    """Return size and cost; with `fall_back` on the CPU where the request's device fails.

    Raises what loading raises, and MeasurementError where the call raises on the last device tried.
    """
    source = Source.of_request(request)
    placement = opened(source)
    if fall_back:
        cost, placement = counted(source, placement, backward=options.backward)
    else:
        cost = measure_cost(placement, backward=options.backward)
    return _count(placement, cost, options)


def _count(placement: Placement, cost: Cost, options: CountOptions) -> Count:
    module = module_of(placement.model)
    size = None if module is None else size_probe.measure(module, placement.target.files)
    inputs = sum(tensor.nbytes for _, tensor in placement.inputs.tensors())
    training: TrainingMemory | None = None
    if module is not None and size is not None and cost.retained_for_backward is not None:
        training = training_memory(
            size,
            _trainable(module),
            inputs=inputs,
            activations=cost.retained_for_backward,
            optimizer=options.optimizer,
        )
    return Count(
        target=describe(placement, training=options.backward),
        size=size,
        cost=cost,
        totals=cost.totals,
        training=training,
        elsewhere=()
        if size is None
        else tuple(elsewhere(cost, size, roofs, training, inputs=inputs) for roofs in options.on),
    )


def _trainable(module: nn.Module) -> list[Trainable]:
    """Return what has a gradient: each parameter once, as an optimizer is given them."""
    return [
        Trainable(tuple(one.shape), str(one.dtype).removeprefix("torch."), one.itemsize)
        for one in module.parameters()
        if one.requires_grad and not is_lazy(one)
    ]
