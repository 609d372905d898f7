"""Profiles a model without torch: size, cost, latency, throughput, memory."""

from __future__ import annotations

from typing import Any

from torchgauge.analyze.latency.training_phases import throughput
from torchgauge.analyze.work.bottleneck import bottleneck
from torchgauge.analyze.work.lower_bound import roofline
from torchgauge.analyze.work.roof_quality import implausible
from torchgauge.compat.arrays import counting, latency, memory
from torchgauge.compat.arrays.calling import batch_of, run
from torchgauge.compat.arrays.kept import preserved
from torchgauge.compat.quick_roofs import quick_roofs
from torchgauge.device.environment import environment
from torchgauge.device.load import NoGpu
from torchgauge.device.roofs.numpy_kernels import Host, NumpyKernels
from torchgauge.measure.arrays import members
from torchgauge.measure.latency.latency_options import SamplingPlan
from torchgauge.measure.machine import system
from torchgauge.records.profile import Profile
from torchgauge.records.system import System
from torchgauge.records.target import InputDescription, TargetDescription
from torchgauge.records.work.size import DtypeSize, Size
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.precisions import name_of


def profile(model: Any, inputs: Inputs, plan: SamplingPlan) -> Profile:
    """Measure a duck-typed model or any callable, and return the record.

    Raises ModelError `forward-raised`, InputError `not-callable`.
    """
    machine_environment = environment()
    timed = latency.measure(model, inputs, plan)
    cost, _ = counting.count(model, inputs)
    roofs = quick_roofs(cost, NumpyKernels(), Host())
    target = _described(model, inputs)
    return Profile(
        target=target,
        environment=machine_environment,
        size=size(model),
        cost=cost,
        latency=timed,
        throughput=throughput(timed, target),
        memory=memory.measure(model, inputs),
        system=_system(model, inputs),
        roofline=roofline(cost, timed, roofs),
        bottleneck=bottleneck(cost, timed, roofs),
        warnings=implausible(machine_environment.machine, "cpu", cost, timed, None),
    )


def _system(model: Any, inputs: Inputs) -> System:
    """Sample the machine's use while the call repeats."""
    with preserved(model, inputs.args, dict(inputs.kwargs)):
        return system.measure(lambda: run(model, inputs), gpus=NoGpu())


def size(model: Any) -> Size | None:
    """Return how big the model is; None where no parameter of it is known."""
    arrays = [array for _, array in members.parameters(model)]
    if not arrays:
        return None
    by_dtype: dict[str, DtypeSize] = {}
    for array in arrays:
        before = by_dtype.get(str(array.dtype), DtypeSize(elements=0, bytes=0))
        by_dtype[str(array.dtype)] = DtypeSize(
            elements=before.elements + array.size, bytes=before.bytes + array.nbytes
        )
    elements = sum(array.size for array in arrays)
    return Size(
        parameters=elements,
        trainable=elements,
        buffers=0,
        parameter_bytes=sum(array.nbytes for array in arrays),
        buffer_bytes=0,
        by_dtype=by_dtype,
    )


def _described(model: Any, inputs: Inputs) -> TargetDescription:
    name = name_of(model)
    values = [*enumerate(inputs.args), *inputs.kwargs.items()]
    named_arrays = [(str(key), members.array_of(value)) for key, value in values]
    dtypes = {str(array.dtype) for _, array in members.parameters(model)}
    return TargetDescription(
        spec=name,
        kind="callable",
        name=name,
        device="cpu",
        precision=dtypes.pop() if len(dtypes) == 1 else "unknown",
        precision_method="native",
        inputs=tuple(
            InputDescription(name=key, shape=array.shape, dtype=str(array.dtype))
            for key, array in named_arrays
            if array is not None
        ),
        batch=batch_of(inputs),
    )
