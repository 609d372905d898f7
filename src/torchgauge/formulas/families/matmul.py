"""Matrix products, and distances between rows."""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.families.sparse import is_sparse, sparse_sparse
from torchgauge.formulas.operand import (
    FREE,
    Operand,
    Work,
    elements_of,
    is_nested,
    parts,
    product,
    vector,
)
from torchgauge.formulas.registry import formula

# Rows from which on torch computes Euclidean distances by a matrix product (cdist's own rule).
CDIST_ROWS = 25


@formula(
    "aten::mm", "aten::_scaled_mm", "aten::_scaled_mm_v2", "aten::_int_mm", "aten::_sparse_mm",
    "aten::hspmm", "quantized::matmul",
)  # fmt: skip
def mm(a: Operand, b: Operand, *args: Any, **kwargs: Any) -> Work | None:
    """[n, m] = mm([n, k], [k, m]); a sparse operand's stored elements times the other's side."""
    if is_sparse(b):
        return sparse_sparse(a, b) if is_sparse(a) else product(a.shape[0] * elements_of(b), a)
    return product(elements_of(a) * b.shape[-1], a)


@formula("aten::addmm", "aten::_addmm_activation", "aten::_sparse_addmm", "aten::sspaddmm")
def addmm(self: Operand, a: Operand, b: Operand, *args: Any, **kwargs: Any) -> Work | None:
    """[n, m] = addmm([n, m], [n, k], [k, m])."""
    return mm(a, b)


@formula("inductor::_mm_plus_mm")
def mm_plus_mm(a: Operand, b: Operand, c: Operand, d: Operand, out: Any) -> Work:
    """[n, m] = [n, k]·[k, m] + [n, l]·[l, m]."""
    return product(elements_of(a) * b.shape[1] + elements_of(c) * d.shape[1], a)


@formula("aten::bmm")
def bmm(a: Operand, b: Operand, *args: Any, **kwargs: Any) -> Work:
    """[b, n, m] = bmm([b, n, k], [b, k, m])."""
    if is_nested(a) or is_nested(b):
        return product(_paired(a, b), a)
    return product(elements_of(a) * b.shape[2], a)


def _paired(a: Operand, b: Operand) -> int:
    pairs = zip(parts(a), parts(b), strict=True)
    return sum(math.prod(a_sizes) * b_sizes[-1] for a_sizes, b_sizes in pairs)


@formula("aten::baddbmm", "aten::addbmm")
def baddbmm(self: Operand, a: Operand, b: Operand, *args: Any, **kwargs: Any) -> Work:
    """As bmm; addbmm adds the products of the batch up as well, which is part of the product."""
    return bmm(a, b)


@formula("aten::mv", "aten::dot", "aten::vdot")
def mv(a: Operand, b: Operand) -> Work:
    """[n] = mv([n, k], [k]), and [] = dot([k], [k])."""
    return product(elements_of(a), a)


@formula("aten::addmv")
def addmv(self: Operand, a: Operand, b: Operand, **kwargs: Any) -> Work:
    """[n] = addmv([n], [n, k], [k])."""
    return mv(a, b)


@formula("aten::addr")
def addr(self: Operand, a: Operand, b: Operand, **kwargs: Any) -> Work:
    """[n, m] = addr([n, m], [n], [m])."""
    return product(elements_of(a) * elements_of(b), a)


@formula("aten::matmul")
def matmul(a: Operand, b: Operand, *, outputs: Any) -> Work:
    """[..., n, m] = matmul([..., n, k], [..., k, m]), where it arrives whole."""
    if is_nested(a) or is_nested(b):
        return product(_paired(a, b), a)
    return product(elements_of(outputs) * a.shape[-1], a)


@formula("aten::matmul_backward")
def matmul_backward(gradient: Operand, a: Operand, b: Operand, mask: Any) -> Work:
    """The forward's products for each gradient that the mask asks for."""
    gradient_count = bool(mask[0]) + bool(mask[1])
    if is_nested(gradient) or is_nested(a):
        pairs = zip(parts(gradient), parts(a), strict=True)
        macs = sum(math.prod(gradient_sizes) * a_sizes[-1] for gradient_sizes, a_sizes in pairs)
        return product(gradient_count * macs, gradient)
    return product(gradient_count * elements_of(gradient) * a.shape[-1], gradient)


@formula("aten::linear", "aten::mkldnn_linear", "mkldnn::_linear_pointwise", "mkl::_mkl_linear")
def linear(operand: Operand, weight: Operand, *args: Any, outputs: Any, **kwargs: Any) -> Work:
    """[..., m] = linear([..., k], [m, k])."""
    if is_nested(operand):
        return product(elements_of(operand) * weight.shape[0], operand)
    # The output's side: a weight may be packed, and a fused operand may stand before it.
    return product(elements_of(operand) * outputs.shape[-1], operand)


@formula("aten::linear_backward", "aten::mkldnn_linear_backward")
def linear_backward(operand: Operand, gradient: Operand, weight: Operand, output_mask: Any) -> Work:
    """A product for the input's gradient, one for the weight's, a sum for the bias's."""
    gradient_count = bool(output_mask[0]) + bool(output_mask[1])
    work = product(gradient_count * elements_of(operand) * weight.shape[0], operand)
    bias = vector(elements_of(gradient), gradient) if output_mask[2] else FREE
    return work._replace(vector=bias.vector)


@formula("aten::mkldnn_linear_backward_input")
def linear_backward_input(input_size: Any, gradient: Operand, weight: Operand) -> Work:
    """[..., k] = [..., m]·[m, k]."""
    return product(elements_of(gradient) * weight.shape[1], gradient)


@formula("aten::mkldnn_linear_backward_weights")
def linear_backward_weights(
    gradient: Operand, operand: Operand, weight: Operand, bias_defined: bool
) -> Work:
    """[m, k] = [m, ...]·[..., k], and the bias's sum."""
    work = product(elements_of(operand) * weight.shape[0], operand)
    return work._replace(vector=elements_of(gradient) if bias_defined else 0)


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
    "aten::_dyn_quant_matmul_4bit", "quantized::int4mm_packed_weight_cpu",
)  # fmt: skip
def weight_only(a: Operand, weight: Operand, *args: Any, outputs: Any, **kwargs: Any) -> Work:
    """[n, m] = a floating [n, k] with packed integer weights, which are widened first."""
    return product(elements_of(a) * outputs.shape[-1], a)


@formula("aten::_trilinear")
def trilinear(
    a: Operand, b: Operand, c: Operand, expand1: Any, expand2: Any, expand3: Any,
    sumdim: Any, unroll_dim: int = 1,
) -> Work:  # fmt: skip
    """nn.Bilinear: [b, o] = [b, i] · [o, i, j] · [b, j], the first product b·o·i·j, then b·o·j."""
    a_sizes, b_sizes, c_sizes = (
        _expanded(operand, dimensions)
        for operand, dimensions in ((a, expand1), (b, expand2), (c, expand3))
    )
    joint_sizes = [max(sizes) for sizes in zip(a_sizes, b_sizes, strict=True)]
    # What the third operand lacks is summed already; of what it has, its own size tells.
    remaining_sizes = [
        1 if dimension in sumdim else size for dimension, size in enumerate(joint_sizes)
    ]
    second = math.prod(max(sizes) for sizes in zip(remaining_sizes, c_sizes, strict=True))
    return product(math.prod(joint_sizes) + second, a)


def _expanded(operand: Operand, dimensions: Any) -> list[int]:
    sizes = list(operand.shape)
    for dimension in sorted(dimensions):
        sizes.insert(dimension, 1)
    return sizes


@formula("aten::_euclidean_dist")
def euclidean_dist(a: Operand, b: Operand, *, outputs: Any) -> Work:
    """[..., p, r] by |x|² + |y|² − 2·x·y: the product, and the norms and roots as vector work.

    Each component is squared and added up (2); each pair is added up twice, clamped and rooted (4).
    """
    work = product(elements_of(outputs) * a.shape[-1], a)
    norms = 2 * (elements_of(a) + elements_of(b))
    return work._replace(vector=norms + 4 * elements_of(outputs))


@formula("aten::_cdist_forward")
def cdist(a: Operand, b: Operand, p: float, compute_mode: Any, *, outputs: Any) -> Work:
    """[..., p, r]: a product for many rows and p = 2, else three per component and pair."""
    many_rows = max(a.shape[-2], b.shape[-2]) > CDIST_ROWS
    if p == 2 and (compute_mode == 1 or (compute_mode in (None, 0) and many_rows)):
        return euclidean_dist(a, b, outputs=outputs)
    return vector(3 * elements_of(outputs) * a.shape[-1], a)


@formula("aten::_cdist_backward")
def cdist_backward(gradient: Operand, a: Operand, b: Operand, p: float, cdist: Any) -> Work:
    """Four per component and pair: difference, derivative, product with the gradient, addition."""
    return vector(4 * elements_of(gradient) * a.shape[-1], a)


PER_COMPONENT = 3
# The difference, its power's derivative, the product with the gradient, and the addition.
BACKWARD = 4


def _pairs(operand: Operand) -> int:
    rows, components = operand.shape
    return int(rows * (rows - 1) // 2 * components)


@formula("aten::_pdist_forward")
def pdist(operand: Operand, p: float = 2) -> Work:
    """Three per component of the n·(n − 1)/2 pairs."""
    return vector(PER_COMPONENT * _pairs(operand), operand)


@formula("aten::_pdist_backward")
def pdist_backward(gradient: Any, operand: Operand, p: float, distances: Any) -> Work:
    """Four per component of the pairs, each added to both rows: five."""
    return vector((BACKWARD + 1) * _pairs(operand), operand)
