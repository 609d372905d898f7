"""The objects, arrays and parameters of a duck-typed model."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from torchgauge.formulas.families.reduction import sort
from torchgauge.formulas.operand import FREE, Described, Work, product, vector
from torchgauge.formulas.promotion import pointwise_work, reduction_work

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
    attributes = getattr(owner, "__dict__", None)
    if isinstance(attributes, Mapping):  # a library may answer to any name
        yield from list(attributes.items())
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
    for value in _members_named(model) if values is None else values:
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


def _members_named(model: Any) -> Iterator[Any]:
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


# NumPy's names of the operations whose complex form takes another number of real ones.
_NAMES = {
    "multiply": "mul", "divide": "div", "subtract": "sub", "absolute": "abs", "prod": "prod",
}  # fmt: skip
_BATCHED = frozenset({"matmul", "vecdot", "matvec", "vecmat"})
_CONTRACTIONS = frozenset({"dot", "vdot", "inner", "tensordot"})
_CONVOLUTIONS = {"convolve": "full", "correlate": "valid"}


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


_REDUCTIONS = _words(
    """sum prod mean max amax min amin any all argmax argmin std var nansum nanmean nanmax nanmin
    cumsum cumprod count_nonzero"""
)
_POINTWISE = _words("clip round around nan_to_num angle sinc diff isclose real_if_close outer fix")
_SORTS = frozenset({"sort", "argsort"})
# Views, copies, questions: nothing is computed.
_MOVES = _words(
    """alen append apply_over_axes argwhere array_equal array_split atleast_1d atleast_2d atleast_3d
    block broadcast_arrays broadcast_to can_cast column_stack common_type compress concatenate copy
    copyto delete diag diag_indices_from diagonal diagflat dsplit dstack empty_like expand_dims
    extract flatnonzero flip fliplr flipud full_like hsplit hstack imag insert iscomplexobj
    isrealobj ix_ may_share_memory moveaxis matrix_transpose min_scalar_type ndim nonzero ones_like
    pad permute_dims place put put_along_axis putmask ravel real repeat require reshape resize
    result_type roll rollaxis rot90 select shape shares_memory size sliding_window_view split
    squeeze stack swapaxes take take_along_axis tile transpose tril tril_indices_from triu
    triu_indices_from trim_zeros unravel_index unstack vsplit vstack where zeros_like"""
)


_UFUNCS = ("numpy", "numpy._core.umath", "numpy.core.umath", "scipy.special")


def described(array: Array) -> Described:
    """Return what formulas need to know of an array."""
    return Described(array.shape, str(array.dtype), (), array.itemsize)


def ufunc_work(ufunc: Any, method: str, inputs: Sequence[Any], result: Any) -> Work | None:
    """Return the work of a universal function: one per output element, or per input of a reduction.

    Of products what they multiply. None for other functions of whole matrices, and those that
    neither NumPy nor SciPy has.
    """
    functions = (getattr(sys.modules.get(name), ufunc.__name__, None) for name in _UFUNCS)
    if not any(function is ufunc for function in functions):  # a user's own may do anything
        return None
    arrays = [described(np.asarray(value)) for value in inputs]
    outputs = [described(np.asarray(value)) for value in _several(result)]
    if ufunc.signature is not None:
        if ufunc.__name__ not in _BATCHED:
            return None
        # The side that is summed over is the first operand's last, but for a vector times matrices.
        return product(math.prod(outputs[0].shape) * arrays[0].shape[-1], outputs[0])
    name = _NAMES.get(ufunc.__name__, ufunc.__name__)
    if method in ("reduce", "accumulate", "reduceat"):
        return reduction_work("prod" if name == "mul" else name, arrays[:1])
    if method == "at":
        touched = arrays[1]._replace(dtype=arrays[0].dtype)
        return pointwise_work(name, arrays[:1], touched)
    return pointwise_work(name, arrays, outputs[0])


def function_work(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
) -> Work | None:
    """Return the work of a function of NumPy's; None for one without a rule."""
    name = func.__name__
    if func.__module__ not in ("numpy", "numpy.linalg", "numpy.lib.stride_tricks"):
        return None
    if name == "einsum":
        return _einsum(args, kwargs, result)
    if name in _MOVES:
        return FREE
    arrays = [described(value) for value in args if isinstance(value, np.ndarray)]
    outputs = [described(np.asarray(value)) for value in _several(result)]
    if not arrays or not outputs:
        return None
    if func.__module__ == "numpy.linalg":
        return _linalg(name, arrays, outputs[0])
    if name in _CONTRACTIONS:
        return _contraction(args, outputs[0])
    if name in _CONVOLUTIONS:
        return _convolution(args, kwargs, outputs[0], _CONVOLUTIONS[name])
    if name in _REDUCTIONS:
        return reduction_work(name, arrays[:1])
    if name in _POINTWISE:
        return pointwise_work("mul" if name == "outer" else name, arrays, outputs[0])
    return sort(arrays[0]) if name in _SORTS else None


def _linalg(name: str, arrays: list[Described], output: Described) -> Work | None:
    if name == "norm":  # a square and an addition of each
        return vector(2 * math.prod(arrays[0].shape), arrays[0])
    if name in _BATCHED:
        return product(math.prod(output.shape) * arrays[0].shape[-1], output)
    return None


def _contraction(args: Sequence[Any], output: Described) -> Work:
    """[f·g] of [f·c] and [c·g] takes f·c·g: the root of the product of the three sizes."""
    a, b = (np.asarray(value) for value in args[:2])
    if not a.ndim or not b.ndim:
        return vector(math.prod(output.shape), output)
    return product(math.isqrt(a.size * b.size * math.prod(output.shape)), output)


def _convolution(
    args: Sequence[Any], kwargs: Mapping[str, Any], output: Described, usual: str
) -> Work:
    """Each output takes as many products as the two overlap there."""
    a, v = (np.ones(np.size(value)) for value in args[:2])
    mode: Any = kwargs.get("mode", args[2] if len(args) > 2 else usual)
    return product(round(np.convolve(a, v, mode).sum()), output)


def _einsum(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Work | None:
    """One product and one addition for each combination of indices; of three operands two products.

    None where a path of pairwise contractions is taken, which goes another way.
    """
    if not isinstance(args[0], str):
        return None
    operands = [np.asarray(value) for value in args[1:]]
    output = described(np.asarray(result))
    if len(operands) > 2 and kwargs.get("optimize", False):
        return None
    input_labels = args[0].replace(" ", "").partition("->")[0]
    sizes: dict[str, int] = {}
    for labels, operand in zip(input_labels.split(","), operands, strict=True):
        before, dots, after = labels.partition("...")
        shape = operand.shape
        wide = shape[len(before) : len(shape) - len(after)] if dots else ()
        named = [*before, *(f".{dimension}" for dimension in range(-len(wide), 0)), *after]
        for label, length in zip(named, shape, strict=True):
            sizes[label] = max(length, sizes.get(label, 1))  # 1 is stretched
            if not length:
                return FREE
    combinations = math.prod(sizes.values())
    output_size = math.prod(output.shape)
    if len(operands) == 1:
        return FREE if combinations == output_size else vector(combinations, output)
    if combinations == output_size and len(operands) == 2:  # nothing is summed up
        return pointwise_work("mul", [described(value) for value in operands], output)
    work = product(combinations, output)
    return work._replace(matmul=work.matmul // 2 * len(operands))


def _several(result: Any) -> Sequence[Any]:
    if result is None:
        return ()
    return result if isinstance(result, tuple | list) else (result,)
