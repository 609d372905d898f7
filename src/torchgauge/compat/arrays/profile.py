"""A whole profile of what needs no torch: size, cost, latency, throughput, memory."""

from __future__ import annotations

from typing import Any

from torchgauge.analyze.bottleneck import bottleneck
from torchgauge.analyze.plausible import implausible
from torchgauge.analyze.roofline import roofline
from torchgauge.analyze.throughput import throughput
from torchgauge.compat.arrays import counting, latency, members, memory
from torchgauge.compat.arrays.calling import batch_of, run
from torchgauge.compat.arrays.kept import kept
from torchgauge.compat.quick_roofs import quick_roofs
from torchgauge.device.environment import environment
from torchgauge.device.gpu_metrics import NoGpu
from torchgauge.device.numpy_kernels import Host, NumpyKernels
from torchgauge.measure import system
from torchgauge.measure.sampling import SamplingPlan
from torchgauge.model.profile import Profile
from torchgauge.model.size import DtypeSize, Size
from torchgauge.model.system import System
from torchgauge.model.target import InputDescription, TargetDescription
from torchgauge.target.inputs import Inputs
from torchgauge.target.names import name_of


def profile(model: Any, inputs: Inputs, plan: SamplingPlan) -> Profile:
    """Measure a duck-typed model or any callable, and return the record.

    Raises MeasurementError `forward-raised`, InputError `not-callable`.
    """
    where = environment()
    timed = latency.measure(model, inputs, plan)
    cost, _ = counting.count(model, inputs)
    roofs = quick_roofs(cost, NumpyKernels(), Host())
    target = _described(model, inputs)
    return Profile(
        target=target,
        environment=where,
        size=size(model),
        cost=cost,
        latency=timed,
        throughput=throughput(timed, target),
        memory=memory.measure(model, inputs),
        system=_system(model, inputs),
        roofline=roofline(cost, timed, roofs),
        bottleneck=bottleneck(cost, timed, roofs),
        warnings=implausible(where.machine, "cpu", cost, timed, None),
    )


def _system(model: Any, inputs: Inputs) -> System:
    """Sample the machine's use while the call repeats."""
    with kept(model, inputs.args, dict(inputs.kwargs)):
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
    found = [(str(key), members.array_of(value)) for key, value in values]
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
            for key, array in found
            if array is not None
        ),
        batch=batch_of(inputs),
    )
