"""What a duck-typed model holds: its objects, its arrays, its parameters."""

from __future__ import annotations

import contextlib
import functools
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

CALLS = ("__call__", "forward", "predict")
# Attributes that are parameters where a model has no `parameters()` that would say so.
PARAMETER = re.compile(
    r"(w|b|w[qkvoxh]|weights?|bias(es)?|kernel|gamma|beta|coefs?|intercepts?)(_\w*|\d*)",
    re.IGNORECASE,
)
_LEAVES = (str, bytes, int, float, complex, type, types.ModuleType, types.GeneratorType, np.generic)


def array_of(value: Any) -> Array | None:
    """Return an array, or the one that is a tensor's `.data`; None where there is none."""
    if isinstance(value, np.ndarray):
        return value
    try:
        inner = None if isinstance(value, _LEAVES) else getattr(value, "data", None)
    except Exception:  # noqa: BLE001 - a property of the user's that has nothing to give
        return None
    return inner if isinstance(inner, np.ndarray) else None


def method_of(kind: type, name: str) -> Any:
    """Return what a class or a base of it defines; None for what `type` itself would answer."""
    return next((one.__dict__[name] for one in kind.__mro__ if name in one.__dict__), None)


def objects(root: Any, *, functions: bool = False) -> list[Any]:
    """Return the root and every object and container that its attributes lead to, each once.

    With `functions` also what a function's closure, defaults and global names lead to, and those of
    the methods by which an object is called.
    """
    found: dict[int, Any] = {}
    pending = [root]
    while pending:
        one = pending.pop()
        if id(one) in found or one is None or isinstance(one, _LEAVES):
            continue
        found[id(one)] = one
        pending += [value for _, value in reversed(list(entries(one)))]
        if functions:
            pending += _seen_by(one)
    return list(found.values())


def entries(one: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (name, value) of an object's attributes, or of a container's members."""
    if isinstance(one, np.ndarray | types.FunctionType | types.BuiltinFunctionType | np.ufunc):
        return
    if isinstance(one, Mapping):
        yield from list(one.items())
    elif isinstance(one, list | tuple):
        yield from enumerate(one)
    elif isinstance(one, types.MethodType):
        yield "__self__", one.__self__
    elif isinstance(one, functools.partial):
        yield from enumerate((one.func, one.args, one.keywords))
    yield from list(getattr(one, "__dict__", {}).items())
    for name in slots(one):
        yield name, getattr(one, name)


def slots(one: Any) -> list[str]:
    """Return the names of an object's slots that hold a value."""
    names: list[str] = []
    for kind in type(one).__mro__:
        declared = kind.__dict__.get("__slots__", ())
        names += [declared] if isinstance(declared, str) else list(declared)
    own = [name for name in names if name not in ("__dict__", "__weakref__")]
    return [name for name in own if hasattr(one, name)]


def _seen_by(one: Any) -> list[Any]:
    if isinstance(one, types.MethodType):
        return [one.__func__]
    if not isinstance(one, types.FunctionType):
        found = [method_of(type(one), name) for name in CALLS]
        return [call for call in found if isinstance(call, types.FunctionType)]
    cells = [cell.cell_contents for cell in one.__closure__ or () if _filled(cell)]
    names = one.__code__.co_names
    values = [one.__globals__[name] for name in names if name in one.__globals__]
    return [*cells, *values, *(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]


def _filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def parameters(model: Any) -> list[tuple[Any, Array]]:
    """Return (parameter, its array) of each, a shared array once.

    They are what `model.parameters()` gives (a sequence, pairs with names, a mapping), else every
    attribute in the model's objects that is named like one ("weight", "bias", "W1", "coef_").
    """
    values: list[Any] | None = None
    given = getattr(model, "parameters", None)
    if callable(given):
        with contextlib.suppress(Exception):  # it may ask a layer that has none
            given = given()
    if isinstance(given, Iterable):
        values = list(_listed(given))
    found: dict[Any, tuple[Any, Array]] = {}
    for value in _named(model) if values is None else values:
        array = array_of(value)
        if array is not None:
            found.setdefault((array.__array_interface__["data"][0], array.nbytes), (value, array))
    return list(found.values())


def _listed(given: Any) -> Iterable[Any]:
    values = given.values() if isinstance(given, Mapping) else given
    for value in () if values is None else values:
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
            yield value[1]
        elif isinstance(value, Mapping | list | tuple):
            yield from _listed(value)
        else:
            yield value


def _named(model: Any) -> Iterator[Any]:
    for one in objects(model):
        for name, value in entries(one):
            if isinstance(name, str) and PARAMETER.fullmatch(name):
                yield from value if isinstance(value, list | tuple) else (value,)


def count(model: Any) -> int:
    """Return the elements of all parameters."""
    return sum(array.size for _, array in parameters(model))


def size(model: Any) -> int:
    """Return the bytes of all parameters."""
    return sum(array.nbytes for _, array in parameters(model))
