"""Arrays that report operations on them to the tally, while a call is counted.

NumPy asks them first (`__array_ufunc__`, `__array_function__`) whenever one of them takes part.
Where an array is converted, as to a Python number or for another library, the work from there on is
unknown, and noted as that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from torchgauge.compat.arrays.array_work import function_work, ufunc_work
from torchgauge.compat.arrays.members import Array
from torchgauge.compat.arrays.tally import Tally
from torchgauge.formulas.work import Work
from torchgauge.signals import restoring

# Functions that make arrays without an array argument: NumPy does not ask Tracked for them.
_CREATORS = (
    "array", "asarray", "asanyarray", "ascontiguousarray", "zeros", "ones", "empty", "full",
    "arange", "linspace", "eye", "identity",
)  # fmt: skip
# Methods that compute without dispatch; NumPy's functions of the same name dispatch.
_METHODS = (
    "all", "any", "argmax", "argmin", "argsort", "clip", "cumprod", "cumsum", "dot", "max", "mean",
    "min", "prod", "round", "std", "sum", "var",
)  # fmt: skip
_ESCAPES = ("__float__", "__complex__", "item", "tolist", "tobytes", "sort", "partition")

# Functions that yield an array's elements one by one, as numbers that are not tracked.
_ITERATORS = ("nditer", "ndenumerate")
# Exceptions of a rule on arguments that it does not support.
_NO_RULE = (AttributeError, IndexError, KeyError, TypeError, ValueError)

_counting = threading.local()


class Tracked(np.ndarray[Any, Any]):
    """A view of an array that reports operations on it to this thread's tally."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        operands = [plain(operand) for operand in inputs]
        outs = kwargs.get("out")
        plain_kwargs = {name: plain(value) for name, value in kwargs.items()}
        result = getattr(ufunc, method)(*operands, **plain_kwargs)
        done = operands[0] if method == "at" else result
        _note(ufunc, operands, inputs, done, lambda: ufunc_work(ufunc, method, operands, done))
        if outs is not None:
            return outs[0] if len(outs) == 1 else outs
        return tracked(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        plain_args, plain_kwargs = plain(args), plain(kwargs)
        result = func(*plain_args, **plain_kwargs)
        _note(func, (plain_args, plain_kwargs), (args, kwargs), result,
              lambda: function_work(func, plain_args, plain_kwargs, result))  # fmt: skip
        return kwargs["out"] if kwargs.get("out") is not None else tracked(result)

    def __getitem__(self, key: Any) -> Any:
        return tracked(super().__getitem__(key))

    @property
    def flat(self) -> Any:
        """The elements one by one, which are not tracked."""
        _escaped(self, "flat")
        return super().flat


def _method(name: str) -> Callable[..., Any]:
    def call(self: Tracked, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    return call


def _escape(name: str) -> Callable[..., Any]:
    of_array = getattr(np.ndarray, name)

    def call(self: Tracked, *args: Any, **kwargs: Any) -> Any:
        _escaped(self, name)
        return of_array(self, *args, **kwargs)

    return call


def _escaped(array: Any, name: str) -> None:
    tally = current()
    if tally is not None and isinstance(array, Tracked) and array.dtype.kind in "fc":
        tally.unknown(f"ndarray.{name}")


for _name in _METHODS:
    setattr(Tracked, _name, _method(_name))
for _name in _ESCAPES:
    setattr(Tracked, _name, _escape(_name))


def current() -> Tally | None:
    """Return the tally of the call that this thread counts; None where it counts none."""
    tally: Tally | None = getattr(_counting, "tally", None)
    return tally


def tracked(value: Any) -> Any:
    """Return arrays and real or complex scalars as tracked ones, in tuples and lists too."""
    if isinstance(value, Tracked):
        return value
    if isinstance(value, np.inexact) or type(value) is np.ndarray:
        return _asarray(value).view(Tracked)
    if type(value) in (tuple, list):
        return type(value)(tracked(element) for element in value)
    return value


def plain(value: Any) -> Any:
    """Return the values with plain arrays in place of tracked ones."""
    if isinstance(value, Tracked):
        return value.view(np.ndarray)
    if type(value) in (tuple, list):
        return type(value)(plain(element) for element in value)
    if type(value) is dict:
        return {name: plain(element) for name, element in value.items()}
    return value


@restoring
def counting(tally: Tally) -> Iterator[None]:
    """Count on this thread; new arrays of NumPy are tracked from the start."""
    before = {name: getattr(np, name) for name in (*_CREATORS, *_ITERATORS)}
    outer = current()
    _counting.tally = tally
    try:
        for name, make in before.items():
            setattr(np, name, (_creator if name in _CREATORS else _iterator)(make))
        yield
    finally:
        for name, make in before.items():
            setattr(np, name, make)
        _counting.tally = outer


_asarray = np.asarray


def _creator(make: Callable[..., Any]) -> Callable[..., Any]:
    def create(*args: Any, **kwargs: Any) -> Any:
        array, tally = make(*args, **kwargs), current()
        if tally is None:
            return array
        for source in args[:1]:
            tally.check(source)
        return tracked(array)

    return create


def _iterator(make: Callable[..., Any]) -> Callable[..., Any]:
    def iterate(*args: Any, **kwargs: Any) -> Any:
        for array in arrays(args):
            _escaped(array, make.__name__)
        return make(*args, **kwargs)

    return iterate


def _note(
    func: Any, plain_arguments: Any, arguments: Any, result: Any, work: Callable[[], Work | None]
) -> None:
    """Add a call to the tally; `arguments` are `plain_arguments` before they were made plain."""
    tally = current()
    if tally is None:
        return
    for array in arrays(arguments):
        tally.check(array)
    outputs = arrays(result)
    dtype = outputs[0].dtype if outputs else getattr(result, "dtype", "float64")
    moved = sum(array.nbytes for array in (*arrays(plain_arguments), *outputs))
    _counting.tally = None  # what a formula computes is not the model's work
    try:
        known_work = work()
    except _NO_RULE:
        known_work = None
    finally:
        _counting.tally = tally
    module = getattr(func, "__module__", None) or "numpy"
    tally.add(f"{module}.{func.__name__}", known_work, dtype, moved)


def arrays(values: Any) -> list[Array]:
    """Return the arrays among values, those in tuples, lists and mappings too."""
    if isinstance(values, np.ndarray):
        return [values]
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, tuple | list):
        return [array for value in values for array in arrays(value)]
    return []
