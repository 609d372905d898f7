"""Reductions, scans, orderings and searches that torch does not tag as reductions.

A reduction is one operation per input element. Orderings are comparisons, whose number depends on
the values: estimated. Sorting n takes n·log2 n, selecting one rank 2n (quickselect's expectation).
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.families.per_element import per_element
from torchgauge.formulas.operand import Operand, Work, elements, elements_of, vector
from torchgauge.formulas.promotion import reduction_work
from torchgauge.formulas.registry import formula


@formula(
    "aten::cumsum",
    "aten::cummax",
    "aten::cummin",
    "aten::_cummax_helper",
    "aten::_cummin_helper",
    "aten::native_norm",
    "aten::bincount",
    "aten::histc",
    "aten::histogram",
    "aten::_histogramdd_from_bin_cts",
    "aten::_histogramdd_from_bin_tensors",
    "aten::_is_all_true",
    "aten::_is_any_true",
    "aten::hash_tensor",
    "aten::segment_reduce",
    "aten::_sparse_sum",
    "aten::_sparse_csr_sum",
)
def one_per_input(operand: Operand, *_args: Any, **_named: Any) -> Work:
    """One per input element."""
    return reduction_work("sum", (operand,))


@formula("aten::cumprod", "aten::_sparse_csr_prod")
def product_scan(operand: Operand, *_args: Any, **_named: Any) -> Work:
    """One product per input element."""
    return reduction_work("prod", (operand,))


@formula(
    *("aten::_aminmax", "aten::aminmax", "aten::var_mean", "aten::std_mean", "aten::dist"),
    "aten::_histogramdd_bin_edges",
)
def two_per_input(operand: Operand, *_args: Any, **_named: Any) -> Work:
    """Two reductions, or a difference and a reduction: two per input element."""
    return reduction_work("sum", (operand,), 2)


@formula("aten::_segment_reduce_backward")
def segment_reduce_backward(gradient: Any, output: Any, data: Operand, *_r: Any, **_n: Any) -> Work:
    """One per element of the data."""
    return reduction_work("sum", (data,))


@formula("aten::trace")
def trace(operand: Operand) -> Work:
    """One addition per diagonal element."""
    return vector(min(operand.shape), operand)


def _ordered(comparisons: float, *operands: Operand) -> Work:
    return vector(round(comparisons), *operands)._replace(estimated=True)


def _logarithm(size: int) -> float:
    return math.log2(size) if size > 1 else 0.0


def _length(operand: Operand, dim: int) -> int:
    return int(operand.shape[dim]) if len(operand.shape) else 1


@formula("aten::sort", "aten::argsort", "aten::msort", "aten::mode")
def sort(operand: Operand, *args: Any, dim: int | None = None, **_named: Any) -> Work:
    """n·log2 n comparisons per row of n; `dim` is the first whole number given, −1 without."""
    dims = [
        argument
        for argument in args
        if isinstance(argument, int) and not isinstance(argument, bool)
    ]
    length = _length(operand, dim if dim is not None else (dims or [-1])[0])
    return _ordered(elements(operand) * _logarithm(length), operand)


@formula("aten::topk")
def topk(operand: Operand, k: int, dim: int = -1, *args: Any, **named: Any) -> Work:
    """One comparison per element to select, k·log2 k per row to sort what was selected."""
    length = max(1, _length(operand, dim))
    rows = elements(operand) // length
    in_order = args[1] if len(args) > 1 else named.get("sorted", True)
    sorting = rows * k * _logarithm(k) if in_order else 0
    return _ordered(elements(operand) + sorting, operand)


@formula("aten::median", "aten::nanmedian", "aten::kthvalue")
def selection(operand: Operand, *_args: Any, **_named: Any) -> Work:
    """Two comparisons per element."""
    return _ordered(2 * elements(operand), operand)


@formula("aten::_unique", "aten::_unique2", "aten::unique_dim")
def unique(operand: Operand, *_args: Any, **_named: Any) -> Work:
    """Sorting all elements, n·log2 n, and comparing neighbours, n."""
    count = elements(operand)
    return _ordered(count * _logarithm(count) + count, operand)


# Comparing neighbours: one per element.
per_element(__name__, 1, "aten::unique_consecutive", "aten::unique_dim_consecutive")


@formula("aten::isin")
def membership(values: Any, among: Any, *_args: Any, **_named: Any) -> Work:
    """Sorting both together: n·log2 n comparisons of the n elements of the two."""
    operands = [operand for operand in (values, among) if hasattr(operand, "shape")]
    count = sum(map(elements_of, operands))
    return _ordered(count * _logarithm(count), *operands)


def _searched(boundaries: Operand, values: Any) -> Work:
    count = elements(values) if hasattr(values, "shape") else 1
    return vector(count * math.ceil(math.log2(_length(boundaries, -1) + 1)), boundaries)


@formula("aten::searchsorted")
def searchsorted(boundaries: Operand, values: Any, *_args: Any, **_named: Any) -> Work:
    """ceil(log2(n + 1)) comparisons per value among n boundaries."""
    return _searched(boundaries, values)


@formula("aten::bucketize")
def bucketize(values: Any, boundaries: Operand, *_args: Any, **_named: Any) -> Work:
    """ceil(log2(n + 1)) comparisons per value among n boundaries."""
    return _searched(boundaries, values)
