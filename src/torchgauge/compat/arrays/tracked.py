"""Arrays that say what is done with them, while a call is counted.

NumPy asks them first (`__array_ufunc__`, `__array_function__`) whenever one of them takes part.
Where an array leaves this way, as into a number of Python's or another library, what follows is
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

# What makes a new array out of no array: it is NumPy's own business else.
_CREATORS = (
    "array", "asarray", "asanyarray", "ascontiguousarray", "zeros", "ones", "empty", "full",
    "arange", "linspace", "eye", "identity",
)  # fmt: skip
# Methods that compute without asking; NumPy's functions of the same name do ask.
_METHODS = (
    "all", "any", "argmax", "argmin", "argsort", "clip", "cumprod", "cumsum", "dot", "max", "mean",
    "min", "prod", "round", "std", "sum", "var",
)  # fmt: skip
_ESCAPES = ("__float__", "__complex__", "item", "tolist", "tobytes", "sort", "partition")

# What hands out an array's elements one by one, as numbers that nobody watches.
_ITERATORS = ("nditer", "ndenumerate")
# What a rule raises on arguments that it was not made for.
_NO_RULE = (AttributeError, IndexError, KeyError, TypeError, ValueError)

_counting = threading.local()


class Tracked(np.ndarray[Any, Any]):
    """A view of an array that tells the tally of this thread what happens to it."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        given = [plain(one) for one in inputs]
        outs = kwargs.get("out")
        told = {name: plain(value) for name, value in kwargs.items()}
        result = getattr(ufunc, method)(*given, **told)
        done = given[0] if method == "at" else result
        _note(ufunc, given, inputs, done, lambda: ufunc_work(ufunc, method, given, done))
        if outs is not None:
            return outs[0] if len(outs) == 1 else outs
        return tracked(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        given, told = plain(args), plain(kwargs)
        result = func(*given, **told)
        _note(func, (given, told), (args, kwargs), result,
              lambda: function_work(func, given, told, result))  # fmt: skip
        return kwargs["out"] if kwargs.get("out") is not None else tracked(result)

    def __getitem__(self, key: Any) -> Any:
        return tracked(super().__getitem__(key))

    @property
    def flat(self) -> Any:
        """The elements one by one, which nobody watches."""
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


for _each in _METHODS:
    setattr(Tracked, _each, _method(_each))
for _each in _ESCAPES:
    setattr(Tracked, _each, _escape(_each))


def current() -> Tally | None:
    """Return the tally of the call that this thread counts; None where it counts none."""
    found: Tally | None = getattr(_counting, "tally", None)
    return found


def tracked(value: Any) -> Any:
    """Return arrays and real or complex scalars as tracked ones, in tuples and lists too."""
    if isinstance(value, Tracked):
        return value
    if isinstance(value, np.inexact) or type(value) is np.ndarray:
        return _asarray(value).view(Tracked)
    if type(value) in (tuple, list):
        return type(value)(tracked(one) for one in value)
    return value


def plain(value: Any) -> Any:
    """Return what NumPy is to compute with: the same arrays, which say nothing."""
    if isinstance(value, Tracked):
        return value.view(np.ndarray)
    if type(value) in (tuple, list):
        return type(value)(plain(one) for one in value)
    if type(value) is dict:
        return {name: plain(one) for name, one in value.items()}
    return value


@restoring
def counting(tally: Tally) -> Iterator[None]:
    """Count on this thread; arrays that NumPy makes for it are tracked from the start."""
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
        made, tally = make(*args, **kwargs), current()
        if tally is None:
            return made
        for source in args[:1]:
            tally.check(source)
        return tracked(made)

    return create


def _iterator(make: Callable[..., Any]) -> Callable[..., Any]:
    def iterate(*args: Any, **kwargs: Any) -> Any:
        for array in arrays(args):
            _escaped(array, make.__name__)
        return make(*args, **kwargs)

    return iterate


def _note(
    func: Any, given: Any, arguments: Any, result: Any, work: Callable[[], Work | None]
) -> None:
    """Tell the tally of a call; `arguments` are `given` as they came, tracked or not."""
    tally = current()
    if tally is None:
        return
    for one in arrays(arguments):
        tally.check(one)
    made = arrays(result)
    dtype = made[0].dtype if made else getattr(result, "dtype", "float64")
    moved = sum(one.nbytes for one in (*arrays(given), *made))
    _counting.tally = None  # what a formula computes is not the model's work
    try:
        found = work()
    except _NO_RULE:
        found = None
    finally:
        _counting.tally = tally
    module = getattr(func, "__module__", None) or "numpy"
    tally.add(f"{module}.{func.__name__}", found, dtype, moved)


def arrays(values: Any) -> list[Array]:
    """Return the arrays among values, those in tuples, lists and mappings too."""
    if isinstance(values, np.ndarray):
        return [values]
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, tuple | list):
        return [one for value in values for one in arrays(value)]
    return []
