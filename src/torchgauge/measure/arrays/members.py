"""The objects, arrays and parameters of a duck-typed model."""

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
    """Return the attribute that a class or a base of it defines, not its metaclass; else None."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None)


def objects(root: Any, *, functions: bool = False) -> list[Any]:
    """Return the root and every object and container that its attributes lead to, each once.

    With `functions` also what a function's closure, defaults and global names lead to, and those of
    the methods by which an object is called.
    """
    by_id: dict[int, Any] = {}
    pending = [root]
    while pending:
        current = pending.pop()
        if id(current) in by_id or current is None or isinstance(current, _LEAVES):
            continue
        by_id[id(current)] = current
        pending += [value for _, value in reversed(list(entries(current)))]
        if functions:
            pending += _references(current)
    return list(by_id.values())


def entries(owner: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (name, value) of an object's attributes, or of a container's members."""
    if isinstance(owner, np.ndarray | types.FunctionType | types.BuiltinFunctionType | np.ufunc):
        return
    if isinstance(owner, Mapping):
        yield from list(owner.items())
    elif isinstance(owner, list | tuple):
        yield from enumerate(owner)
    elif isinstance(owner, types.MethodType):
        yield "__self__", owner.__self__
    elif isinstance(owner, functools.partial):
        yield from enumerate((owner.func, owner.args, owner.keywords))
    yield from list(getattr(owner, "__dict__", {}).items())
    for name in slots(owner):
        yield name, getattr(owner, name)


def slots(owner: Any) -> list[str]:
    """Return the names of an object's slots that hold a value."""
    names: list[str] = []
    for kind in type(owner).__mro__:
        declared = kind.__dict__.get("__slots__", ())
        names += [declared] if isinstance(declared, str) else list(declared)
    own = [name for name in names if name not in ("__dict__", "__weakref__")]
    return [name for name in own if hasattr(owner, name)]


def _references(owner: Any) -> list[Any]:
    if isinstance(owner, types.MethodType):
        return [owner.__func__]
    if not isinstance(owner, types.FunctionType):
        methods = [method_of(type(owner), name) for name in CALLS]
        return [call for call in methods if isinstance(call, types.FunctionType)]
    cells = [cell.cell_contents for cell in owner.__closure__ or () if _filled(cell)]
    names = owner.__code__.co_names
    values = [owner.__globals__[name] for name in names if name in owner.__globals__]
    return [*cells, *values, *(owner.__defaults__ or ()), *(owner.__kwdefaults__ or {}).values()]


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
    declared = getattr(model, "parameters", None)
    if callable(declared):
        with contextlib.suppress(Exception):  # it may ask a layer that has none
            declared = declared()
    if isinstance(declared, Iterable):
        values = list(_listed(declared))
    by_memory: dict[Any, tuple[Any, Array]] = {}
    for value in _named(model) if values is None else values:
        array = array_of(value)
        if array is not None:
            address = array.view(np.ndarray).__array_interface__["data"][0]
            by_memory.setdefault((address, array.nbytes), (value, array))
    return list(by_memory.values())


def _listed(declared: Any) -> Iterable[Any]:
    values = declared.values() if isinstance(declared, Mapping) else declared
    for value in () if values is None else values:
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
            yield value[1]
        elif isinstance(value, Mapping | list | tuple):
            yield from _listed(value)
        else:
            yield value


def _named(model: Any) -> Iterator[Any]:
    for owner in objects(model):
        for name, value in entries(owner):
            if isinstance(name, str) and PARAMETER.fullmatch(name):
                yield from value if isinstance(value, list | tuple) else (value,)


def count(model: Any) -> int:
    """Return the elements of all parameters."""
    return sum(array.size for _, array in parameters(model))


def size(model: Any) -> int:
    """Return the bytes of all parameters."""
    return sum(array.nbytes for _, array in parameters(model))
