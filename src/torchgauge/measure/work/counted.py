"""The cost of a target's call: where the target is, or on the CPU where its code reads values.

Meta tensors have no values: code that reads one (`.item()`, experts chosen by the data) raises.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import torch

from torchgauge import units
from torchgauge.analyze.onnx.graph_cost import graph_cost
from torchgauge.errors import BuildError, InputError, MeasurementError, ModelError, TorchgaugeError
from torchgauge.measure.forward import opened
from torchgauge.measure.step import decide
from torchgauge.measure.work import cost as cost_probe
from torchgauge.measure.work import size as size_probe
from torchgauge.measure.work.not_called import counted_calls
from torchgauge.records.record import GradMode, MeasurementWarning
from torchgauge.records.work.cost import Cost, CostNode
from torchgauge.targets.builds.source import Source
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement
from torchgauge.targets.target import Target

LARGEST = 4 << 30  # bytes of a model that is given values on the CPU where it fails on meta


class Counted(NamedTuple):
    """A cost, and where it was counted."""

    cost: Cost
    placement: Placement


def measure_cost(placement: Placement, *, backward: bool, flash: bool = True) -> Cost:
    """Count one call in the precision that it is measured in; of an ONNX file from its graph.

    `flash` is whether the GPU, of whose kernels meta tensors take the shapes, has flash attention.
    """
    if placement.target.graph is not None:
        if backward:
            raise InputError(
                f"{placement.target.name} runs in a runtime of its own, without a backward pass.",
                id="option-conflict",
                remedy="Leave --backward and --train out, or give the torch model.",
            )
        return graph_cost(placement.target.graph)
    if placement.target.kind == "aotinductor":
        return _unknown(placement.target)

    def measure(grad_mode: GradMode) -> Cost:
        return counted_calls(
            lambda variation: cost_probe.measure(
                placement.model,
                placement.inputs,
                backward=backward,
                device=placement.device,
                grad_mode=grad_mode,
                flash=flash,
                variation=variation,
            )
        )

    # In inference mode composites arrive whole, and must be split one by one.
    grad_modes: list[GradMode] = [mode for mode in placement.grad_modes if mode != "inference_mode"]
    with placement.arithmetic():
        if backward or not grad_modes:
            return measure("no_grad")
        cost = decide(grad_modes, measure)
    if grad_modes == ["enable_grad"]:
        placement.grad_modes[:] = grad_modes
    return cost


def _unknown(target: Target) -> Cost:
    """Return the cost of a compiled library: it calls few of torch's operators, and tells none."""
    return Cost(
        nodes=(CostNode(name=target.name, path="", kind="", parent=-1, calls=1, parameters=None),),
        rows=(cost_probe.UNSEEN,),
        backward=False,
        counted_on=target.kind,
    )


def counted(source: Source, placement: Placement, *, backward: bool) -> Counted:
    """Count one call of `placement`, which `source` opened; on the CPU where it fails on meta.

    Raises MeasurementError where the call raises on the last device tried, or the model is larger
    than `LARGEST`.
    """
    try:
        return Counted(measure_cost(placement, backward=backward), placement)
    except MeasurementError as error:
        if not countable_with_values(error, placement.device, placement):
            raise
        failed = error
    with torch.device("cpu"):  # the caller may have made another one the default, such as meta
        real = opened(source.on_cpu())
        cost = measure_cost(real, backward=backward)
    return Counted(noted(cost, failed, _bytes(real)), real)


def countable_with_values(
    error: TorchgaugeError, device: str | None, placement: Placement | None
) -> bool:
    """Whether what failed may not fail on tensors with values, and the model is small enough.

    `placement` is the model, where it was loaded.
    """
    of_user = isinstance(error, MeasurementError | BuildError) or error.id == "not-a-module"
    of_user &= not isinstance(error.__cause__, SystemExit)  # which would end another process too
    return of_user and device == "meta" and (placement is None or _bytes(placement) <= LARGEST)


def what_ran(source: Source, placement: Placement, *, backward: bool) -> Cost | None:
    """Return the work of a forward up to the layer that raises, and the shapes of its layers."""
    try:
        return counted(source, placement, backward=backward).cost
    except ModelError as error:
        return None if error.ran is None else msgspec.structs.replace(error.ran, warnings=())
    except TorchgaugeError:  # the profile says already what raised
        return None


def noted(cost: Cost, failed: TorchgaugeError, size: int) -> Cost:
    """Return the cost with a note that it was counted on `size` bytes of values, and why.

    0 where its parameters cannot be listed.
    """
    known_size = f" ({units.size(size)})" if size else ""
    cause = (failed.cause or failed.message).partition(". ")[0].removesuffix(".")
    warning = MeasurementWarning(
        id="counted-on-cpu",
        message=f"Counted on real tensors{known_size}: {cause}.",
        probe="cost",
    )
    return msgspec.structs.replace(cost, warnings=(*cost.warnings, warning))


def _bytes(placement: Placement) -> int:
    module = module_of(placement.model)
    return 0 if module is None else size_probe.measure(module).bytes
