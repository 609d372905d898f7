"""Matrix products: [n, m] = aten::mm([n, k], [k, m]) takes n·k·m multiply-accumulates.

A bias or a sum that a product is fused with is not counted, nor are the factors alpha and beta.
Sparse operands count by the elements that they store.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.operand import Operand
from torchgauge.formulas.registry import formula
from torchgauge.formulas.touched import elements_of
from torchgauge.formulas.work import FREE, Work, product, vector

# Rows from which on torch computes Euclidean distances by a matrix product (cdist's own rule).
CDIST_ROWS = 25


def is_sparse(operand: Any) -> bool:
    """Return True for every sparse layout; a description is dense."""
    layout = getattr(operand, "layout", None)
    return layout is not None and "sparse" in str(layout)


@formula("aten::mm", "aten::_scaled_mm", "aten::_scaled_mm_v2", "aten::_sparse_mm")
def mm(a: Operand, b: Operand, *args: Any, **kwargs: Any) -> Work | None:
    """[n, m] = mm([n, k], [k, m]); a sparse operand's stored elements times the other's columns."""
    if len(b.shape) == 1:
        return mv(a, b)
    if is_sparse(b):
        return None if is_sparse(a) else product(a.shape[0] * elements_of(b), a)
    return product(elements_of(a) * b.shape[1], a)


@formula("aten::_int_mm")
def int_mm(a: Operand, b: Operand) -> Work:
    """[n, m] = _int_mm([n, k], [k, m]) of integers."""
    return product(elements_of(a) * b.shape[1], a)


@formula("aten::addmm", "aten::_addmm_activation", "aten::_sparse_addmm", "aten::sspaddmm")
def addmm(self: Operand, a: Operand, b: Operand, *args: Any, **kwargs: Any) -> Work | None:
    """[n, m] = addmm([n, m], [n, k], [k, m])."""
    return mm(a, b)


@formula("aten::hspmm")
def hspmm(a: Operand, b: Operand) -> Work | None:
    """[n, m] = hspmm(sparse [n, k], [k, m])."""
    return mm(a, b)


@formula("aten::sparse_sampled_addmm")
def sparse_sampled_addmm(self: Operand, a: Operand, b: Operand, **kwargs: Any) -> Work:
    """Only the elements that `self` stores are computed: each takes k."""
    return product(elements_of(self) * a.shape[-1], a)


@formula("aten::bmm")
def bmm(a: Operand, b: Operand, **kwargs: Any) -> Work:
    """[b, n, m] = bmm([b, n, k], [b, k, m])."""
    return product(elements_of(a) * b.shape[2], a)


@formula("aten::baddbmm", "aten::addbmm")
def baddbmm(self: Operand, a: Operand, b: Operand, **kwargs: Any) -> Work:
    """As bmm; addbmm adds the products of the batch up as well, which is part of the product."""
    return bmm(a, b)


@formula("aten::mv")
def mv(a: Operand, b: Operand) -> Work:
    """[n] = mv([n, k], [k])."""
    return product(elements_of(a), a)


@formula("aten::addmv")
def addmv(self: Operand, a: Operand, b: Operand, **kwargs: Any) -> Work:
    """[n] = addmv([n], [n, k], [k])."""
    return mv(a, b)


@formula("aten::dot", "aten::vdot")
def dot(a: Operand, b: Operand) -> Work:
    """[] = dot([k], [k])."""
    return product(elements_of(a), a)


@formula("aten::addr")
def addr(self: Operand, a: Operand, b: Operand, **kwargs: Any) -> Work:
    """[n, m] = addr([n, m], [n], [m])."""
    return product(elements_of(a) * elements_of(b), a)


@formula("aten::linear", "aten::mkldnn_linear")
def linear(operand: Operand, weight: Operand, bias: Any = None) -> Work:
    """[..., m] = linear([..., k], [m, k])."""
    return product(elements_of(operand) * weight.shape[0], operand)


@formula("aten::linear_backward", "aten::mkldnn_linear_backward")
def linear_backward(operand: Operand, gradient: Operand, weight: Operand, output_mask: Any) -> Work:
    """A product for the input's gradient, one for the weight's, a sum for the bias's."""
    wanted = bool(output_mask[0]) + bool(output_mask[1])
    work = product(wanted * elements_of(operand) * weight.shape[0], operand)
    bias = vector(elements_of(gradient), gradient) if output_mask[2] else FREE
    return work._replace(vector=bias.vector)


@formula("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2")
def grouped_mm(a: Operand, b: Operand, *args: Any, **kwargs: Any) -> Work:
    """A product for each group: every row, column or inner index is in one group.

    [n, m] = ([n, k], [g, k, m]); ([g, n, k], [k, m]); [g, n, m] = ([n, k], [k, m]) with groups of
    k; and bmm for two operands of three dimensions.
    """
    rows, inner = a.shape[-2:]
    batch = a.shape[0] if len(a.shape) == len(b.shape) == 3 else 1
    return product(batch * rows * inner * b.shape[-1], a)


@formula(
    "aten::_weight_int8pack_mm", "aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_for_cpu",
    "aten::_weight_int4pack_mm_with_scales_and_zeros", "aten::_mixed_dtypes_linear",
    "aten::_dyn_quant_matmul_4bit",
)  # fmt: skip
def weight_only(a: Operand, weight: Operand, *args: Any, outputs: Any, **kwargs: Any) -> Work:
    """[n, m] = a floating [n, k] with packed integer weights, which are widened first."""
    return product(elements_of(a) * outputs.shape[-1], a)


@formula("aten::_cslt_sparse_mm")
def cslt_sparse_mm(compressed: Operand, dense: Operand, *args: Any, **kwargs: Any) -> Work:
    """Half of [n, k] is stored, with its places beside it: dense work is half of n·k·m."""
    columns = dense.shape[1]
    stored = elements_of(compressed) * 8 // (9 if compressed.itemsize > 1 else 10)
    return product(stored * columns, dense)._replace(estimated=True)


@formula("aten::_sparse_semi_structured_linear", "aten::_sparse_semi_structured_mm")
def semi_structured(a: Operand, b: Operand, *args: Any, outputs: Any, **kwargs: Any) -> Work:
    """Two of four weights are stored: each takes part for each column of the other operand."""
    inner = min(a.shape[-1], b.shape[-1])
    return product(elements_of(outputs) * inner, outputs)._replace(estimated=True)


@formula("aten::_sparse_semi_structured_addmm")
def semi_structured_addmm(
    self: Operand, a: Operand, meta: Any, b: Operand, *, outputs: Any, **kwargs: Any
) -> Work:
    """As the product without the sum: `a` stores half of its elements."""
    return product(elements_of(outputs) * a.shape[-1], outputs)


@formula("aten::_trilinear")
def trilinear(
    one: Operand, two: Operand, three: Operand, expand1: Any, expand2: Any, expand3: Any,
    sumdim: Any, unroll_dim: int = 1,
) -> Work:  # fmt: skip
    """nn.Bilinear: [b, o] = [b, i] · [o, i, j] · [b, j], the first product b·o·i·j, then b·o·j."""
    shapes = []
    for operand, expanded in ((one, expand1), (two, expand2), (three, expand3)):
        sizes = list(operand.shape)
        for place in sorted(expanded):
            sizes.insert(place, 1)
        shapes.append(sizes)
    whole = [max(sizes) for sizes in zip(*shapes, strict=True)]
    first = math.prod(whole)
    second = first // whole[sumdim[0]] if sumdim and whole[sumdim[0]] else first
    return product(first + second, one)


@formula("aten::_euclidean_dist")
def euclidean_dist(one: Operand, two: Operand) -> Work:
    """[p, r] = ([p, m], [r, m]) by |x|² + |y|² − 2·x·y: the product."""
    return product(elements_of(one) * two.shape[-2], one)


@formula("aten::_cdist_forward")
def cdist(one: Operand, two: Operand, p: float, compute_mode: Any) -> Work:
    """[p, r] = ([p, m], [r, m]): a product for many rows and p = 2, else three per component."""
    rows, others = one.shape[-2], two.shape[-2]
    many = rows > CDIST_ROWS or others > CDIST_ROWS
    if p == 2 and (compute_mode == 1 or (compute_mode in (None, 0) and many)):
        return euclidean_dist(one, two)
    return vector(3 * elements_of(one) * others, one)


@formula("aten::_cdist_backward")
def cdist_backward(gradient: Operand, one: Operand, two: Operand, p: float, cdist: Any) -> Work:
    """Four per component and pair: difference, derivative, product with the gradient, addition."""
    return vector(4 * elements_of(one) * two.shape[-2], one)
