"""Calls a duck-typed model, and makes example inputs for it."""

from __future__ import annotations

import copy
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from torchgauge.errors import SAME_CALL, InputError, MeasurementError, ModelError, text_of
from torchgauge.forks import translating
from torchgauge.measure.arrays.members import Array, array_of, objects, parameters
from torchgauge.targets.deferred import finished
from torchgauge.targets.inputs.inputs import Inputs

T = TypeVar("T")


def call_of(model: Any) -> Callable[..., Any]:
    """Return how the model is called: itself, its `forward`, its `predict` or its `layers` in turn.

    Raises InputError `not-callable`.
    """
    if callable(model):
        return model  # type: ignore[no-any-return]
    for name in ("forward", "predict"):
        method = getattr(model, name, None)
        if callable(method):
            return method  # type: ignore[no-any-return]
    layers = getattr(model, "layers", None)
    if isinstance(layers, list | tuple) and layers:
        return functools.partial(_run_layers, layers)
    raise not_callable(model)


def not_callable(model: Any) -> InputError:
    """Return the error for a model that has no way to be called."""
    return InputError(
        f"A {type(model).__name__} cannot be called.",
        id="not-callable",
        cause="It has no forward, no __call__, no predict and no list of layers.",
        remedy="Give a model that has one of them, or a function.",
    )


def _run_layers(layers: Sequence[Any], value: Any) -> Any:
    for layer in layers:
        value = call_of(layer)(value)
    return value


def run(model: Any, inputs: Inputs) -> Any:
    """Call the model once.

    Raises ModelError `forward-raised` for whatever it raises, with that as its cause.
    """
    call = call_of(model)
    with translating(translated):
        return finished(call(*inputs.args, **inputs.kwargs))


def translated(error: BaseException) -> ModelError:
    """Return the error that says what the model raised."""
    return ModelError(
        f"The model's forward raised {type(error).__name__}.",
        id="forward-raised",
        cause=text_of(error),
        remedy=SAME_CALL,
    )


def batch_of(inputs: Inputs) -> int | None:
    """Return the leading dimension that all arrays of two and more dimensions share.

    One dimension is one sample. None without an array, or where they differ.
    """
    arrays = list(_arrays(inputs))
    sizes = {array.shape[0] for array in arrays if array.ndim > 1} or ({1} if arrays else set())
    return int(sizes.pop()) if len(sizes) == 1 else None


def _arrays(inputs: Inputs) -> Iterator[Array]:
    for value in (*inputs.args, *inputs.kwargs.values()):
        array = array_of(value)
        if array is not None:
            yield array


def mapped(inputs: Inputs, change: Callable[[Array], Array]) -> Inputs:
    """Return the inputs with each array changed, in a tensor where it was in one."""

    def changed_value(value: Any) -> Any:
        array = array_of(value)
        return value if array is None else like(value, change(array))

    return inputs.map_arguments(changed_value)


def like(value: Any, array: Array) -> Any:
    """Return the array in a tensor of the value's class, or as it is where that is an array."""
    if isinstance(value, np.ndarray):
        return array
    try:
        tensor = type(value)(array)
    except Exception:  # noqa: BLE001 - a class of the user's may want other arguments
        tensor = copy.copy(value)
    original = array_of(tensor)
    if original is None or type(original) is not type(array):
        tensor.data = array
    return tensor


def examples(model: Any, shape: tuple[int, ...]) -> Iterator[Inputs]:
    """Yield inputs of a shape, the likeliest first: in the framework's tensor, then as an array.

    Real numbers in [0, 1), of the parameters' type, are valid indices where a model rounds them;
    zeros where it wants integers.
    """
    dtypes = Counter[Any]()
    for _, array in parameters(model):
        if array.dtype.kind in "fc":
            dtypes[array.dtype] += array.size
    dtype = dtypes.most_common(1)[0][0] if dtypes else np.dtype(np.float32)
    values = np.random.default_rng(0).random(shape).astype(dtype)
    arrays = (values, np.zeros(shape, np.int64))
    kind = tensor_class(model)
    if kind is not None:
        for array in arrays:
            try:
                yield Inputs((kind(array),))
            except Exception:  # noqa: BLE001 - the class takes no array: try plain arrays
                break
    for array in arrays:
        yield Inputs((array,))


def tensor_class(model: Any) -> type | None:
    """Return the class of a framework's tensors: that of parameters, or `Tensor` beside a layer."""
    for parameter, array in parameters(model):
        if parameter is not array:
            return type(parameter)
    for owner in objects(model):
        candidate = getattr(sys.modules.get(type(owner).__module__), "Tensor", None)
        if isinstance(candidate, type):
            return candidate
    return None


def accepted(model: Any, shape: tuple[int, ...], attempt: Callable[[Any, Inputs], T]) -> T:
    """Return what the attempt makes of the first example that the model takes.

    Raises the first attempt's MeasurementError where it takes none.
    """
    failed: MeasurementError | None = None
    for inputs in examples(model, shape):
        try:
            return attempt(model, inputs)
        except MeasurementError as error:
            failed = failed or error
    raise failed or AssertionError("there is always an example")
