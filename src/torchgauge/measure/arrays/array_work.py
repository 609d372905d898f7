"""The work of NumPy's functions, by the conventions of `formulas/`; None is unknown, never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torchgauge.formulas.elementwise import pointwise_work, reduction_work
from torchgauge.formulas.families.reduction import sort
from torchgauge.formulas.operand import Described
from torchgauge.formulas.work import FREE, Work, product, vector
from torchgauge.measure.arrays.members import Array

# NumPy's names of the operations whose complex form takes another number of real ones.
_NAMES = {
    "multiply": "mul", "divide": "div", "subtract": "sub", "absolute": "abs", "prod": "prod",
}  # fmt: skip
_BATCHED = frozenset({"matmul", "vecdot", "matvec", "vecmat"})
_CONTRACTIONS = frozenset({"dot", "vdot", "inner", "tensordot"})
_CONVOLUTIONS = {"convolve": "full", "correlate": "valid"}


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


_REDUCTIONS = _named(
    """sum prod mean max amax min amin any all argmax argmin std var nansum nanmean nanmax nanmin
    cumsum cumprod count_nonzero"""
)
_POINTWISE = _named("clip round around nan_to_num angle sinc diff isclose real_if_close outer fix")
_SORTS = frozenset({"sort", "argsort"})
# Views, copies, questions: nothing is computed.
_MOVES = _named(
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


def described(array: Array) -> Described:
    """Return what formulas need to know of an array."""
    return Described(array.shape, str(array.dtype), (), array.itemsize)


def ufunc_work(ufunc: Any, method: str, inputs: Sequence[Any], result: Any) -> Work | None:
    """Return the work of a universal function: one per output element, or per input of a reduction.

    Of products what they multiply. None for other functions of whole matrices.
    """
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
