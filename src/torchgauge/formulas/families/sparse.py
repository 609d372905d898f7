"""Sparse products: every stored element meets each element of a row of the other operand.

The elements stored are read from the tensor, explicit zeros and whole blocks included. Where the
operand's contents are not there to be read (two sparse operands on meta), the work is unknown.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

from typing import Any

from torchgauge.formulas.operand import Operand, Work, elements_of, product
from torchgauge.formulas.registry import formula


def is_sparse(operand: Any) -> bool:
    """Return True for every sparse layout; a description is dense."""
    layout = getattr(operand, "layout", None)
    return layout is not None and "sparse" in str(layout)


@formula("aten::_sparse_sparse_matmul")
def sparse_sparse(a: Operand, b: Operand) -> Work | None:
    """Σ over k of the elements in column k of the first and row k of the second."""
    columns, rows = _stored_along(a, 1), _stored_along(b, 0)
    if columns is None or rows is None:
        return None
    macs = sum(column * row for column, row in zip(columns, rows, strict=True))
    return product(macs, a)


def _stored_along(operand: Any, dimension: int) -> list[int] | None:
    """Return how many elements are stored at each index of a matrix's dimension."""
    layout = str(operand.layout).removeprefix("torch.")
    if str(operand.device) == "meta" or layout not in ("sparse_coo", "sparse_csr", "sparse_csc"):
        return None
    size = operand.shape[dimension]
    if layout == "sparse_coo":
        positions = operand._indices()[dimension]  # noqa: SLF001 - the public one refuses uncoalesced
    elif layout == ("sparse_csr", "sparse_csc")[dimension]:
        ends = operand.crow_indices() if dimension == 0 else operand.ccol_indices()
        return list(ends.diff().tolist())
    else:
        positions = operand.row_indices() if dimension == 0 else operand.col_indices()
    return list(positions.bincount(minlength=size).tolist())


@formula("aten::sparse_sampled_addmm")
def sampled_addmm(self: Operand, a: Operand, b: Operand, **kwargs: Any) -> Work:
    """Only the elements that `self` stores are computed: each takes k."""
    return product(elements_of(self) * a.shape[-1], a)


@formula("aten::_sparse_mm_reduce_impl")
def mm_reduce(self: Operand, other: Operand, reduce: str) -> Work:
    """[n, m] from a sparse [n, k] and [k, m]: each stored element times m, however reduced."""
    return product(elements_of(self) * other.shape[1], self)


@formula("aten::_sparse_mm_reduce_impl_backward")
def mm_reduce_backward(
    self: Operand, gradient: Operand, weight: Operand, reduce: str, arg_out: Any, output_mask: Any
) -> Work:
    """The forward's products for each gradient that the mask asks for."""
    gradient_count = bool(output_mask[0]) + bool(output_mask[1])
    return product(gradient_count * elements_of(self) * gradient.shape[1], self)


@formula("aten::_cslt_sparse_mm")
def cslt(compressed: Operand, dense: Operand, *args: Any, **kwargs: Any) -> Work:
    """[n, m] from [n, k] of which half is stored, and [k, m]: n·k/2·m.

    The compressed form holds n·k·9/16 elements, of one byte n·k·10/16: half, and where they belong.
    """
    inner, columns = dense.shape
    rows = elements_of(compressed) * 16 // ((9 if compressed.itemsize > 1 else 10) * inner)
    return product(rows * inner // 2 * columns, dense)


@formula("aten::_sparse_semi_structured_linear")
def semi_structured_linear(
    operand: Operand, weight: Operand, meta: Any, *, outputs: Any, **kwargs: Any
) -> Work:
    """[..., m] from [..., k] and the stored half [m, k/2]."""
    return product(elements_of(outputs) * weight.shape[-1], operand)


@formula("aten::_sparse_semi_structured_mm")
def semi_structured_mm(a: Operand, meta: Any, b: Operand, **kwargs: Any) -> Work:
    """[n, m] from the stored half [n, k/2] and [k, m]."""
    return product(elements_of(a) * b.shape[-1], a)


@formula("aten::_sparse_semi_structured_addmm")
def semi_structured_addmm(self: Operand, a: Operand, meta: Any, b: Operand, **kwargs: Any) -> Work:
    """The same, its sum not counted."""
    return semi_structured_mm(a, meta, b)
