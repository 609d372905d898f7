"""Counting a target: size and cost, where it is or on the CPU; a training step's memory.

Meta tensors have no values: code that reads one (`.item()`, experts chosen by the data) raises.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec
import torch

from torchgauge import units
from torchgauge.analyze.memory.training_memory import OPTIMIZER, Passes, training_memory
from torchgauge.analyze.onnx.node_work import graph_cost, graph_facts
from torchgauge.analyze.work.lower_bound import estimate_on_device
from torchgauge.errors import (
    BuildError,
    InputError,
    MeasurementError,
    ModelError,
    TorchgaugeError,
    option_conflict,
)
from torchgauge.measure.derived import no_parameters
from torchgauge.measure.description import describe
from torchgauge.measure.forward import opened
from torchgauge.measure.memory.simulated_step import simulate
from torchgauge.measure.step import decide
from torchgauge.measure.work import cost as cost_probe
from torchgauge.measure.work import size as size_probe
from torchgauge.measure.work.count_options import CountOptions
from torchgauge.measure.work.cuda_kernels import CudaKernels
from torchgauge.measure.work.variation import counted_calls
from torchgauge.records.memory.memory import TrainingMemory
from torchgauge.records.record import GradMode, MeasurementWarning
from torchgauge.records.work.cost import Cost, CostNode
from torchgauge.records.work.size import Count
from torchgauge.targets import members
from torchgauge.targets.builds.source import Source
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.tensors import nbytes
from torchgauge.targets.placement import Placement, countable_on
from torchgauge.targets.target import Target, TargetRequest
from torchgauge.targets.training.named_training import named_training

LARGEST = 4 << 30  # bytes of a model that is given values on the CPU where it fails on meta


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
    return counted(source, opened(source), backward=backward)


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
    passes, cause = None, None
    try:
        placement = opened(source)
        kernels = CudaKernels(flash=options.flash) if options.on else None
        passes = simulate(placement, options.train, kernels)
        if passes.unknown:
            cause = f"The allocations of {', '.join(passes.unknown)} are not known."
    except TorchgaugeError as error:
        unfit = isinstance(error, InputError) and not isinstance(error, ModelError)
        if options.train is not None and unfit:
            raise  # the loss that was asked for is none
        cause = error.cause or error.message
    if cause is not None:
        warnings.append(
            MeasurementWarning(
                id="training-memory-at-least",
                message="The peak memory of a training step could not be estimated.",
                cause=cause,
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
        members.trainable(module),
        inputs=sum(nbytes(tensor) for _, tensor in placement.inputs.tensors()),
        passes=passes,
        activations=saved,
        optimizer=optimizer,
    )


def measure_cost(placement: Placement, *, backward: bool, flash: bool = True) -> Cost:
    """Count one call in the precision that it is measured in; of an ONNX file from its graph.

    `flash` is whether the GPU, of whose kernels meta tensors take the shapes, has flash attention.
    """
    if placement.target.graph is not None:
        if backward:
            raise option_conflict(
                f"{placement.target.name} runs in a runtime of its own, without a backward pass.",
                "Leave --backward and --train out, or give the torch model.",
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


def counted(source: Source, placement: Placement, *, backward: bool) -> Cost:
    """Count one call of `placement`, which `source` opened; on the CPU where it fails on meta.

    Raises MeasurementError where the call raises on the last device tried, or the model is larger
    than `LARGEST`.
    """
    try:
        return measure_cost(placement, backward=backward)
    except MeasurementError as error:
        if not countable_with_values(error, placement.device, placement):
            raise
        failed = error
    with torch.device("cpu"):  # the caller may have made another one the default, such as meta
        real = opened(source.on_cpu())
        cost = measure_cost(real, backward=backward)
    return noted(cost, failed, _bytes(real))


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
        return counted(source, placement, backward=backward)
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
        id="counted-on-cpu", message=f"Counted on real tensors{known_size}: {cause}.", probe="cost"
    )
    return msgspec.structs.replace(cost, warnings=(*cost.warnings, warning))


def _bytes(placement: Placement) -> int:
    module = module_of(placement.model)
    return 0 if module is None else size_probe.measure(module).bytes
