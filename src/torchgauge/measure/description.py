"""What was measured, for the record."""

from __future__ import annotations

from typing import Any

from torch import nn

from torchgauge.records.target import InputDescription, TargetDescription
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement, devices_of, native_precision
from torchgauge.targets.precisions import name_of
from torchgauge.targets.runtimes.runtime_model import RuntimeModel
from torchgauge.targets.target import Target


def describe(placement: Placement, *, training: bool) -> TargetDescription:
    """Return what was measured, for the record."""
    target: Target = placement.target
    return TargetDescription(
        spec=target.spec,
        kind=target.kind,
        name=target.name,
        device=placement.device,
        precision=placement.precision,
        precision_method=placement.method,
        inputs=tuple(
            _input(name, tensor) for name, tensor in placement.inputs.tensors(arrays=True)
        ),
        batch=target.batch,
        tokens=target.tokens,
        images=target.images,
        training=training,
        weights=target.weights,
        runtime=placement.model.description if isinstance(placement.model, RuntimeModel) else "",
        grad_mode="enable_grad" if training else placement.grad_modes[0],
    )


def describe_module(model: nn.Module) -> TargetDescription:
    """Return what a model is that a program of its own calls, on as many devices as it may be."""
    name = name_of(model)
    target = Target(model, Inputs.of(()), spec=name, kind="module", name=name)
    return TargetDescription(
        spec=name,
        kind=target.kind,
        name=name,
        device=", ".join(devices_of(target)),
        precision=native_precision(target),
        precision_method="native",
        training=model.training,
        weights=target.weights,
    )


def _input(name: str, tensor: Any) -> InputDescription:
    dtype = str(tensor.dtype).removeprefix("torch.")
    # A nested tensor has no one shape: its parts differ.
    shape = (tensor.size(0),) if tensor.is_nested else tuple(tensor.shape)
    return InputDescription(name=name, shape=shape, dtype=dtype)
