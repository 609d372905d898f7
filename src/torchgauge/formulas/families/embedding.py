"""Look-ups that add, and scattered sums: one per element that is added somewhere."""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

from typing import Any

from torchgauge.formulas.families.per_element import per_element
from torchgauge.formulas.operand import FREE, Operand, Work, elements, elements_of, vector
from torchgauge.formulas.registry import formula

SUM, MEAN, MAX = 0, 1, 2  # modes of a bag


# One addition per element of the gradient.
per_element(__name__, 1, "aten::embedding_dense_backward")


@formula("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(
    weight: Operand,
    indices: Operand,
    offsets: Operand,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Any = None,
    *_args: Any,
    outputs: Any = (),
    **_named: Any,
) -> Work:
    """One per element gathered; one more with sample weights; a mean divides each output."""
    gathered = elements(indices) * weight.shape[1]
    weighted = 2 if per_sample_weights is not None else 1
    divided = elements(outputs[0]) if mode == MEAN and outputs else 0
    return vector(weighted * gathered + divided, weight)


@formula("aten::_embedding_bag_dense_backward", "aten::_embedding_bag_backward")
def embedding_bag_backward(
    gradient: Operand, indices: Operand, *args: Any, per_sample_weights: Any = None, **_named: Any
) -> Work:
    """One per element gathered, and one more where it was weighted."""
    weights = [argument for argument in args[6:] if hasattr(argument, "shape")]
    weighted = 2 if per_sample_weights is not None or weights else 1
    return vector(weighted * elements(indices) * gradient.shape[1], gradient)


@formula("aten::_embedding_bag_per_sample_weights_backward")
def sample_weights_backward(gradient: Operand, weight: Operand, indices: Operand, *_r: Any) -> Work:
    """An inner product of two rows for each index: a product and an addition per element."""
    return vector(2 * elements(indices) * weight.shape[1], gradient)


@formula("aten::embedding_renorm")
def embedding_renorm(weight: Operand, indices: Operand, *_args: Any) -> Work:
    """Three per element of the rows named; estimated, since a row named twice is done once."""
    count = 3 * elements(indices) * weight.shape[1]
    return vector(count, weight)._replace(estimated=True)


# One per element of the source, per index, and per value.
per_element(__name__, 1, "aten::index_add", "aten::index_reduce", counted=3)
per_element(__name__, 1, "aten::scatter_add", "aten::scatter_reduce", counted=2)
per_element(__name__, 1, "aten::_unsafe_masked_index_put_accumulate", counted=3)


@formula("aten::scatter")
def scatter(
    operand: Operand, dim: int, index: Operand, *_source: Any, reduce: Any = None, **_named: Any
) -> Work:
    """None, or one per index with `reduce`."""
    return FREE if reduce is None else vector(elements_of(index), operand)


@formula("aten::put")
def put_accumulate(
    operand: Operand, index: Operand, source: Operand, accumulate: bool = False
) -> Work:
    """None, or one per index where values accumulate."""
    return vector(elements_of(index), operand) if accumulate else FREE


@formula("aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index_put")
def index_put(
    operand: Operand, indices: Any, values: Operand, accumulate: bool = False, unsafe: bool = False
) -> Work:
    """None, or one per value where values accumulate."""
    return vector(elements_of(values), operand) if accumulate else FREE
