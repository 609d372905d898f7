"""The interface between Profiler and a model, with torch or without."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

from torchgauge.analyze.memory.training_memory import Trainable
from torchgauge.errors import InputError, MeasurementError, ModelError, TorchgaugeError
from torchgauge.records.latency.latency import Latency
from torchgauge.records.memory.memory import Memory
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Roofs
from torchgauge.targets.inputs.inputs import Inputs

Shape = tuple[int, ...]

P = ParamSpec("P")
T = TypeVar("T")


class InvalidError(InputError, ValueError):
    """An argument that no measurement can have; a ValueError too, which scripts expect."""


class Backward(NamedTuple):
    """A backward pass: seconds, FLOPs of the whole batch; None is unknown.

    `estimated` says so of `flops`. `peak` is the most bytes that forward and backward hold.
    """

    forward: float | None
    backward: float | None
    flops: int | None
    estimated: bool
    peak: int | None = None


class Subject(Protocol):
    """A model that can be counted, timed and weighed."""

    def parameters(self) -> int | None:
        """Return the elements of its parameters; None of a plain function."""

    def trainable(self) -> list[Trainable]:
        """Return its trainable parameters."""

    def inputs(self, shape: Shape) -> Inputs:
        """Return example inputs of a shape that the model takes."""

    def sample_cost(self, shape: Shape) -> Cost:
        """Return the work of one sample of a shape, which includes the batch."""

    def batch(self, inputs: Inputs) -> int | None:
        """Return the samples in one call; None where the inputs do not say."""

    def first_sample(self, inputs: Inputs) -> Inputs:
        """Return the first sample of the inputs."""

    def cost(self, inputs: Inputs) -> Cost:
        """Return the work of one call."""

    def latency(self, inputs: Inputs, warmup: int, iterations: int) -> Latency:
        """Return the time of a call."""

    def memory(self, inputs: Inputs) -> Memory:
        """Return the memory of a call."""

    def backward(self, inputs: Inputs, warmup: int, iterations: int) -> Backward:
        """Return time, work and memory of a backward pass."""

    def roofs(self, cost: Cost) -> Roofs:
        """Return the machine's peak rates on the dtypes of this cost."""


def is_torch(model: Any, inputs: Inputs | None = None) -> bool:
    """Return whether torch runs it; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    values = () if inputs is None else (*inputs.args, *inputs.kwargs.values())
    return isinstance(model, torch.nn.Module) or any(
        isinstance(value, torch.Tensor) for value in values
    )


def is_tensor(value: Any) -> bool:
    """Return whether it is a tensor or an array, and no model: nothing calls it."""
    from torchgauge.measure.arrays.members import CALLS, array_of

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return True
    return array_of(value) is not None and not any(hasattr(value, name) for name in CALLS)


def given_inputs(inputs: Any) -> Inputs:
    """Return the inputs of a call. Raises InputError `inputs-consumed` for what is read once."""
    call_inputs = Inputs.of(inputs)
    for value in (*call_inputs.args, *call_inputs.kwargs.values()):
        if isinstance(value, Iterator):
            raise InvalidError(
                f"A {type(value).__name__} can be read once, and a model is called many times.",
                id="inputs-consumed",
                cause="After the first call it is empty, and what is measured would be nothing.",
                remedy="Give an array or a tensor; list(…) keeps what a generator yields.",
            )
    return call_inputs


def checked_shape(shape: Any) -> Shape:
    """Return a shape as a tuple. Raises InvalidError `shape-invalid`."""
    try:
        dimensions = (shape,) if hasattr(shape, "__index__") else tuple(shape)
        sizes = tuple(map(operator.index, dimensions))
    except TypeError:
        sizes = (-1,)
    if min(sizes, default=0) < 0:
        raise InvalidError(
            f"{shape!r} is not a shape.",
            id="shape-invalid",
            cause="A shape is whole numbers, 0 or more.",
            remedy="Give a tuple such as (1, 3, 224, 224).",
        )
    return sizes


class RaisedByModelError(ModelError):
    """A ModelError of which subclasses are of its cause's type too."""

    def __reduce__(self) -> tuple[object, ...]:
        """Travel as a ModelError: another process does not have the subclass."""
        plain = ModelError(self.message, id=self.id, cause=self.cause, remedy=self.remedy)
        return plain.__reduce__()


def raises_as_the_model(function: Callable[P, T]) -> Callable[P, T]:
    """Let `except ValueError` catch the error of a model that raised a ValueError."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except RaisedByModelError:
            raise
        except MeasurementError as error:
            raise _of_both_types(error) from error.__cause__

    return call


def _of_both_types(error: MeasurementError) -> MeasurementError:
    """Return the error as one of its cause's type too, where Python allows such a type."""
    original = error.__cause__
    if not isinstance(original, Exception) or isinstance(original, TorchgaugeError):
        return error
    kind = type(original)
    try:
        combined_type: Any = type(
            kind.__name__, (RaisedByModelError, kind), {"__module__": kind.__module__}
        )
        combined_error: MeasurementError = combined_type.__new__(combined_type)
    except TypeError:  # final, of another layout, or not to be made without arguments
        return error
    combined_error.__dict__.update(error.__dict__)
    combined_error.args = error.args
    return combined_error
