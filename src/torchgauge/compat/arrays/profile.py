"""Profiles a model without torch: size, cost, latency, throughput, memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgauge.analyze.latency.latency import combine
from torchgauge.analyze.latency.training_phases import throughput
from torchgauge.analyze.work.bottleneck import bottleneck
from torchgauge.analyze.work.lower_bound import roofline
from torchgauge.analyze.work.roof_quality import implausible
from torchgauge.clock import Clock, SystemClock, resolution
from torchgauge.compat.arrays import counting, memory
from torchgauge.compat.arrays.calling import batch_of, call_of, run, translated
from torchgauge.compat.arrays.memory import preserved, restore
from torchgauge.compat.quick_roofs import quick_roofs
from torchgauge.device.environment import environment
from torchgauge.device.load import NoGpu
from torchgauge.device.roofs.numpy_kernels import Host, NumpyKernels
from torchgauge.forks import PASSING
from torchgauge.measure.arrays import members
from torchgauge.measure.arrays.members import Array, objects
from torchgauge.measure.latency.latency_options import SamplingPlan
from torchgauge.measure.latency.sampling import Timing, sample
from torchgauge.measure.machine import system
from torchgauge.records.latency.latency import Latency
from torchgauge.records.profile import Profile
from torchgauge.records.system import System
from torchgauge.records.target import InputDescription, TargetDescription
from torchgauge.records.work.size import DtypeSize, Size
from torchgauge.targets.deferred import Finishing
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.precisions import name_of


def measure(
    model: Any, inputs: Inputs, plan: SamplingPlan, *, clock: Clock | None = None
) -> Latency:
    """Return the time of a call, in seconds.

    Inputs that a call changes are put back before the next one, outside of what is timed. Raises as
    `run`.
    """
    clock = clock or SystemClock()
    now, call, finishing = clock.now, call_of(model), Finishing()
    args, kwargs = inputs.args, dict(inputs.kwargs)
    arrays = [value for value in objects([args, kwargs]) if isinstance(value, np.ndarray)]
    copies = [value.copy() for value in arrays]
    with preserved(model, args, kwargs):
        run(model, inputs)  # what it raises is said once, and well
        pairs = [pair for pair in zip(arrays, copies, strict=True) if _differ(*pair)]

        def timed() -> Timing:
            for array, before in pairs:
                restore(array, before)
            start = now()
            try:  # which costs a call that succeeds nothing
                outputs = finishing(call(*args, **kwargs))
            except PASSING:
                raise
            except BaseException as error:  # the user's code may raise anything
                raise translated(error) from error
            end = now()
            del outputs  # freed outside the timed region: a caller would still hold them
            return Timing(end - start)

        latency_run = sample(timed, clock, plan, clock_resolution=resolution(clock))
    return combine([latency_run], target_rel_error=plan.target_rel_error)


def _differ(array: Array, before: Array) -> bool:
    return array.tobytes() != before.tobytes()


def profile(model: Any, inputs: Inputs, plan: SamplingPlan) -> Profile:
    """Measure a duck-typed model or any callable, and return the record.

    Raises ModelError `forward-raised`, InputError `not-callable`.
    """
    machine_environment = environment()
    timed = measure(model, inputs, plan)
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
