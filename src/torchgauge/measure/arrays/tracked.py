"""Arrays that report operations on them to an observer, while a call is counted.

NumPy asks them first (`__array_ufunc__`, `__array_function__`) whenever one of them takes part.
Where an array is converted, as to a Python number or for another library, the work from there on is
unknown, and noted as that. Code in C that takes an array's memory is not seen, but for the arrays
that it returns.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from torchgauge.formulas.operand import Work
from torchgauge.measure.arrays.members import Array, function_work, ufunc_work
from torchgauge.signals import replaced, restoring

# Functions that make arrays without an array argument: NumPy does not ask Tracked for them.
_CREATORS = (
    "array", "asarray", "asanyarray", "ascontiguousarray", "zeros", "ones", "empty", "full",
    "arange", "linspace", "eye", "identity", "asarray_chkfinite", "fromiter",
)  # fmt: skip
# Methods that compute without dispatch; NumPy's functions of the same name dispatch.
_METHODS = (
    "all", "any", "argmax", "argmin", "argsort", "clip", "cumprod", "cumsum", "dot", "max", "mean",
    "min", "prod", "round", "std", "sum", "var",
)  # fmt: skip
_ESCAPES = (
    "__float__", "__complex__", "item", "tolist", "tobytes", "tofile", "dump", "dumps", "sort",
    "partition", "__dlpack__", "__reduce_ex__",
)  # fmt: skip
_ESCAPING_ATTRIBUTES = ("flat", "ctypes", "__array_interface__", "__array_struct__")
UNSEEN = "an array of unknown origin"

# Functions that yield an array's elements one by one, as numbers that are not tracked.
_ITERATORS = ("nditer", "ndenumerate")
# Exceptions of a rule on arguments that it does not support.
_NO_RULE = (AttributeError, IndexError, KeyError, TypeError, ValueError)

_counting = threading.local()


class ArrayObserver:
    """Told of the work on tracked arrays, and of what is not known of it.

    `familiar` returns arrays that were there before the call. `follows_numbers` says whether single
    numbers are tracked, and unknown from where they are converted.
    """

    follows_numbers = True

    def __init__(self, familiar: Callable[[], Iterable[Array]]) -> None:
        self._find_familiar = familiar
        self._familiar: dict[int, Array] | None = None  # held: their ids are given to no other

    def add(self, operator: str, work: Work | None, dtype: Any, moved: int) -> None:
        """Add a call of an operator, `moved` bytes read and written; `work` None is unknown."""
        raise NotImplementedError

    def unknown(self, description: str) -> None:
        """Note work that is not known."""
        raise NotImplementedError

    def check(self, array: Any) -> None:
        """Note that an array's origin was not seen: it may be the result of any work."""
        if type(array) is not np.ndarray or not array.ndim or array.dtype.kind not in "fc":
            return
        if self._familiar is None:
            self._familiar = {id(owner): owner for owner in map(root, self._find_familiar())}
        if id(root(array)) not in self._familiar:
            self.unknown(UNSEEN)


def root(array: Array) -> Array:
    """Return the array whose memory this is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Tracked(np.ndarray[Any, Any]):
    """A view of an array that reports operations on it to this thread's observer."""

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


def _method(name: str) -> Callable[..., Any]:
    def call(self: Tracked, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    return call


def _escape(name: str) -> Callable[..., Any]:
    of_array = getattr(np.ndarray, name)
    read = of_array if callable(of_array) else of_array.__get__

    def call(self: Tracked, *args: Any, **kwargs: Any) -> Any:
        _escaped(self, name)
        return read(self, *args, **kwargs)

    return call


def _escaped(array: Any, name: str) -> None:
    observer = current()
    if observer is None or not isinstance(array, Tracked) or array.dtype.kind not in "fc":
        return
    if observer.follows_numbers or array.size > 1:
        observer.unknown(f"ndarray.{name}")


for _name in _METHODS:
    setattr(Tracked, _name, _method(_name))
for _name in _ESCAPES:
    setattr(Tracked, _name, _escape(_name))
for _name in _ESCAPING_ATTRIBUTES:
    setattr(Tracked, _name, property(_escape(_name)))


def current() -> ArrayObserver | None:
    """Return the observer of the call that this thread counts; None where it counts none."""
    observer: ArrayObserver | None = getattr(_counting, "observer", None)
    return observer


def creates() -> bool:
    """Return whether this thread makes an array of something else, and will track it."""
    return getattr(_counting, "creates", False)


def tracked(value: Any) -> Any:
    """Return arrays and real or complex scalars as tracked ones, in tuples and lists too."""
    if isinstance(value, Tracked):
        return value
    if isinstance(value, np.inexact):
        observer = current()
        if observer is not None and not observer.follows_numbers:
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
def counting(observer: ArrayObserver) -> Iterator[None]:
    """Count on this thread; new arrays of NumPy are tracked from the start."""
    functions = [(np, name, _creator(getattr(np, name))) for name in _CREATORS]
    functions += [(np, name, _iterator(getattr(np, name))) for name in _ITERATORS]
    with replaced(functions), _observed_by(observer):
        yield


@contextlib.contextmanager
def _observed_by(observer: ArrayObserver | None) -> Iterator[None]:
    outer = current()
    _counting.observer = observer
    try:
        yield
    finally:
        _counting.observer = outer


_asarray = np.asarray


def _creator(make: Callable[..., Any]) -> Callable[..., Any]:
    def create(*args: Any, **kwargs: Any) -> Any:
        observer = current()
        if observer is None:
            return make(*args, **kwargs)
        # Libraries have compiled code, which writes into arrays unseen.
        library = _library(sys._getframe(1).f_code, make.__name__)  # noqa: SLF001
        _counting.creates = not library
        try:
            array = make(*args, **kwargs)
        finally:
            _counting.creates = False
        for source in args[:1]:
            observer.check(source)
            if library and isinstance(source, Tracked):
                observer.unknown(library)
        return array if library else tracked(array)

    return create


def _library(code: CodeType, function: str) -> str:
    """Return the installed package that calls a function of NumPy's; "" for NumPy and a program.

    Code that does not name the function has called compiled code, which calls it.
    """
    if function not in (*code.co_names, *code.co_varnames, *code.co_freevars):
        return "compiled code"
    parts = Path(code.co_filename).parts
    folders = [n for n, part in enumerate(parts[:-1]) if part in ("site-packages", "dist-packages")]
    package = parts[folders[-1] + 1] if folders else ""
    return "" if package == "numpy" else package.removesuffix(".py")


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
    observer = current()
    if observer is None:
        return
    for array in arrays(arguments):
        observer.check(array)
    outputs = arrays(result)
    dtype = outputs[0].dtype if outputs else getattr(result, "dtype", "float64")
    moved = sum(array.nbytes for array in (*arrays(plain_arguments), *outputs))
    known_work = None
    # What a formula computes is not the model's work.
    with _observed_by(None), contextlib.suppress(*_NO_RULE):
        known_work = work()
    module = getattr(func, "__module__", None) or "numpy"
    observer.add(f"{module}.{func.__name__}", known_work, dtype, moved)


def arrays(values: Any) -> list[Array]:
    """Return the arrays among values, those in tuples, lists and mappings too."""
    return [leaf for leaf in leaves(values) if isinstance(leaf, np.ndarray)]


def leaves(values: Any) -> list[Any]:
    """Return what is in tuples, lists and mappings, each entered once: one may hold itself."""
    pending, entered, inner = [values], dict[int, Any](), list[Any]()
    while pending:
        value = pending.pop()
        if not isinstance(value, tuple | list | Mapping):
            inner.append(value)
        elif id(value) not in entered:
            entered[id(value)] = value
            pending += reversed([*(value.values() if isinstance(value, Mapping) else value)])
    return inner
