"""Counting a target: on meta tensors where it can be, on real ones where it must be."""

from __future__ import annotations

import dataclasses

import msgspec

from torchgauge.analyze.elsewhere import elsewhere
from torchgauge.errors import MeasurementError, TorchgaugeError
from torchgauge.measure import size as size_probe
from torchgauge.measure.plan import describe, measure_cost, opened
from torchgauge.model.cost import Cost
from torchgauge.model.count import Count
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.roofline import Elsewhere, Roofs
from torchgauge.model.size import Size
from torchgauge.target.hygiene import module_of
from torchgauge.target.placement import Placement
from torchgauge.target.source import Source
from torchgauge.target.target import TargetRequest

TRAINING_COPIES = 3  # of the parameters: gradients, and the two moments of AdamW
LARGEST = 4 << 30  # bytes of a model that is counted on real tensors where meta ones fail


def cost_of(source: Source, *, backward: bool) -> Cost:
    """Return the cost of one call of a target as it is."""
    return measure_cost(opened(source), backward=backward)


def count(
    request: TargetRequest, *, backward: bool, fall_back: bool, on: tuple[Roofs, ...] = ()
) -> Count:
    """Return size and cost; with `fall_back` on the CPU where the request's device fails.

    Meta tensors have no values: code that reads one (`.item()`, experts chosen by the data) raises.
    Raises what loading raises, and MeasurementError where the call raises on the last device tried.
    """
    try:
        return _count(opened(Source.of_request(request)), backward=backward, on=on)
    except TorchgaugeError as error:
        if not fall_back or not isinstance(error, MeasurementError):
            raise
        failed = error
    if (size := _bytes(request)) > LARGEST:
        raise failed
    real = dataclasses.replace(request, device="cpu")
    counted = _count(opened(Source.of_request(real)), backward=backward, on=on)
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


def _count(placement: Placement, *, backward: bool, on: tuple[Roofs, ...]) -> Count:
    module = module_of(placement.model)
    size = None if module is None else size_probe.measure(module, placement.target.files)
    cost = measure_cost(placement, backward=backward)
    return Count(
        target=describe(placement, training=backward),
        size=size,
        cost=cost,
        elsewhere=()
        if size is None
        else tuple(_elsewhere(cost, size, placement, roofs) for roofs in on),
    )


def _elsewhere(cost: Cost, size: Size, placement: Placement, roofs: Roofs) -> Elsewhere:
    """Estimate the call there; a training step with gradients and AdamW's two moments."""
    trained = size.parameter_bytes * size.trainable // max(size.parameters, 1)
    return elsewhere(
        cost,
        size,
        roofs,
        cost.retained_for_backward,
        inputs=sum(tensor.nbytes for _, tensor in placement.inputs.tensors()),
        states=TRAINING_COPIES * trained if cost.backward else 0,
    )
