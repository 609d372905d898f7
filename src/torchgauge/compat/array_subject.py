"""The Subject of a model without torch."""

from __future__ import annotations

import statistics
import time
import types
from typing import Any

import numpy as np

from torchgauge.analyze.memory.training_memory import Trainable
from torchgauge.compat.arrays import counting, memory, profile
from torchgauge.compat.arrays.calling import accepted, batch_of, like, mapped, run
from torchgauge.compat.arrays.memory import preserved
from torchgauge.compat.quick_roofs import quick_roofs
from torchgauge.compat.subject import Backward, Shape
from torchgauge.device.roofs.numpy_kernels import Host, NumpyKernels
from torchgauge.errors import MeasurementError
from torchgauge.measure.arrays import members
from torchgauge.measure.arrays.members import Array
from torchgauge.measure.latency.latency_options import SamplingPlan
from torchgauge.records.latency.latency import Latency
from torchgauge.records.memory.memory import Memory
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Roofs
from torchgauge.targets.inputs.inputs import Inputs


class ArraySubject:
    """A teaching framework's model, an estimator, any callable on arrays."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def parameters(self) -> int | None:
        """Return the elements of its parameters; None of a plain function."""
        plain = isinstance(self.model, types.FunctionType | types.BuiltinFunctionType | np.ufunc)
        return None if plain else members.count(self.model)

    def trainable(self) -> list[Trainable]:
        """Return its parameters: which of them are frozen is not known."""
        return [
            Trainable(array.shape, str(array.dtype), array.itemsize)
            for _, array in members.parameters(self.model)
        ]

    def inputs(self, shape: Shape) -> Inputs:
        """Return an array of that shape, in the framework's tensor where it has one."""

        def attempt(model: Any, call_inputs: Inputs) -> Inputs:
            run(model, call_inputs)
            return call_inputs

        with preserved(self.model):
            return accepted(self.model, shape, attempt)

    def sample_cost(self, shape: Shape) -> Cost:
        """Return the work of one sample; known layers do not run for it."""
        cost, unbatched = accepted(self.model, shape, counting.count)
        if unbatched or len(shape) < 2 or shape[0] == 1:
            return cost
        return accepted(self.model, (1, *shape[1:]), counting.count)[0]

    def batch(self, inputs: Inputs) -> int | None:
        """Return the leading dimension; 1 where a layer takes the input as one sample."""
        return 1 if counting.count(self.model, inputs)[1] else batch_of(inputs)

    def first_sample(self, inputs: Inputs) -> Inputs:
        """Return the first sample of each array that has a batch; of no sample one of zeros."""
        if self.batch(inputs) == 1:
            return inputs

        def first(array: Array) -> Array:
            if array.ndim < 2:
                return array
            return array[:1] if len(array) else np.zeros((1, *array.shape[1:]), array.dtype)

        return mapped(inputs, first)

    def cost(self, inputs: Inputs) -> Cost:
        """Return the work of one call, in one layer: the whole model."""
        return counting.count(self.model, inputs)[0]

    def latency(self, inputs: Inputs, warmup: int, iterations: int) -> Latency:
        """Return the time of a call."""
        return profile.measure(self.model, inputs, SamplingPlan(warmup, iterations))

    def memory(self, inputs: Inputs) -> Memory:
        """Return the memory of a call by tracemalloc."""
        return memory.measure(self.model, inputs)

    def backward(self, inputs: Inputs, warmup: int, iterations: int) -> Backward:
        """Return the time of `outputs.backward` where they have it; the work is estimated.

        A product of the forward pass becomes two: one for the gradient of each of its operands.
        """
        work = self.cost(inputs)
        flops = None if work.at_least else 2 * work.flops
        with preserved(self.model, inputs.args, dict(inputs.kwargs)):
            if not callable(getattr(run(self.model, inputs), "backward", None)):
                return Backward(None, None, flops, estimated=True)
            times = [self._step(inputs) for _ in range(warmup + iterations)][warmup:]
        peak = memory.passes_peak(self.model, inputs, _backward)
        forward, backward = (statistics.median(part) for part in zip(*times, strict=True))
        return Backward(forward, backward, flops, estimated=True, peak=peak)

    def _step(self, inputs: Inputs) -> tuple[float, float]:
        start = time.perf_counter()
        outputs = run(self.model, inputs)
        middle = time.perf_counter()
        _backward(outputs)
        return middle - start, time.perf_counter() - middle

    def roofs(self, cost: Cost) -> Roofs:
        """Return NumPy's peak rates on this machine."""
        return quick_roofs(cost, NumpyKernels(), Host())


def _backward(outputs: Any) -> None:
    """Send ones into the outputs, in the form that the framework takes."""
    array = members.array_of(outputs)
    ones = np.ones(1 if array is None else array.shape)
    forms: list[tuple[Any, ...]] = [(ones,), ()]
    if array is not None:
        forms.insert(1, (like(outputs, ones),))
    if array is None or array.size == 1:
        forms.reverse()
    failed: Exception | None = None
    for form in forms:
        try:
            outputs.backward(*form)
        except Exception as error:  # noqa: BLE001 - another form may be the right one
            failed = failed or error
        else:
            return
    raise MeasurementError(
        "The outputs' backward raised.",
        id="backward-raised",
        cause=f"{type(failed).__name__}: {failed}",
        remedy="It is called with ones of the outputs' shape, or with nothing.",
    ) from failed
