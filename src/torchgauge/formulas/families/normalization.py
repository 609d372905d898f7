"""Normalisation layers, by the arithmetic of each element.

Forward: the mean takes an addition; the variance a subtraction, a square and an addition; the
normalised value a subtraction and a multiplication; weight and bias one each. Work per row or
channel (a root, a quotient) is left out: it is one in hundreds. A backward pass is counted for the
gradients that its mask asks for, from the formulas of Ioffe and Szegedy (2015), section 3.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

from typing import Any

from torchgauge.formulas.families.per_element import per_element
from torchgauge.formulas.operand import FREE, Operand, Work, elements_of, vector
from torchgauge.formulas.registry import formula

MEAN, VARIANCE, NORMALISE = 1, 3, 2
# Normalised value again (2); the sums of the gradient (1) and of its product with that value (2);
# two products and two subtractions (4).
INPUT_GRADIENT = 7
WEIGHT_GRADIENT, BIAS_GRADIENT = 2, 1
# The gradient times weight and reciprocal deviation, one factor per channel.
FROZEN_GRADIENT = 1


def _per_element(operations: int, operand: Operand) -> Work:
    return vector(operations * elements_of(operand), operand)


def _affine(*parameters: Any) -> int:
    return sum(parameter is not None for parameter in parameters)


def _normalised(operand: Operand, trains: Any, weight: Any, bias: Any) -> Work:
    statistics = MEAN + VARIANCE if trains else 0
    return _per_element(statistics + NORMALISE + _affine(weight, bias), operand)


@formula("aten::native_layer_norm")
def layer_norm(
    operand: Operand, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 0
) -> Work:
    """Six per element, and one each for weight and bias."""
    return _normalised(operand, True, weight, bias)


@formula("aten::_fused_rms_norm", "torchgauge::rms_norm")
def rms_norm(operand: Operand, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Work:
    """Square, addition and product with the reciprocal root: three per element, one for weight."""
    return _per_element(3 + _affine(weight), operand)


@formula(
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit_functional",
    "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm",
)
def batch_norm(
    operand: Operand,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    *_scalars: Any,
    **_named: Any,
) -> Work:
    """Six per element in training, two with running statistics; one each for weight and bias."""
    return _normalised(operand, training, weight, bias)


@formula("aten::_native_batch_norm_legit")
def batch_norm_legit(operand: Operand, weight: Any, bias: Any, *args: Any, **_named: Any) -> Work:
    """As `native_batch_norm`; `training` is the third from the end, running statistics optional."""
    return _normalised(operand, args[-3], weight, bias)


@formula(
    "aten::native_group_norm",
    "aten::_batch_norm_with_update",
    "aten::_batch_norm_with_update_functional",
)
def with_own_statistics(operand: Operand, weight: Any, bias: Any, *_r: Any, **_named: Any) -> Work:
    """Six per element, and one each for weight and bias."""
    return _normalised(operand, True, weight, bias)


@formula(
    "aten::_native_batch_norm_legit_no_training",
    "aten::_batch_norm_no_update",
    "aten::batch_norm_elemt",
    "aten::quantized_batch_norm",
)
def batch_norm_evaluation(operand: Operand, weight: Any, bias: Any, *_r: Any, **_n: Any) -> Work:
    """Two per element, and one each for weight and bias."""
    return _normalised(operand, False, weight, bias)


# Mean and variance: four per element. Combined of several devices: four per statistic.
per_element(__name__, MEAN + VARIANCE, "aten::batch_norm_stats", "aten::batch_norm_update_stats")
per_element(
    __name__,
    MEAN + VARIANCE,
    *("aten::batch_norm_gather_stats", "aten::batch_norm_gather_stats_with_counts"),
    counted=1,
    typed=1,
)


def _gradients(operand: Operand, weight: Any, output_mask: Any, frozen: bool = False) -> Work:
    inputs, weights, biases = (*output_mask, False)[:3]
    operations = 0
    if inputs and frozen:
        operations += FROZEN_GRADIENT
    elif inputs:
        operations += INPUT_GRADIENT + _affine(weight)
    if weights or (inputs and not frozen):
        operations += NORMALISE
    operations += WEIGHT_GRADIENT * bool(weights) + BIAS_GRADIENT * bool(biases)
    return _per_element(operations, operand) if operations else FREE


@formula("aten::native_layer_norm_backward")
def layer_norm_backward(
    gradient: Operand,
    operand: Operand,
    normalized_shape: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    output_mask: Any,
) -> Work:
    """Nine per element for the input (ten with weight), two for the weight, one for the bias."""
    return _gradients(operand, weight, output_mask)


@formula("aten::native_group_norm_backward")
def group_norm_backward(
    gradient: Operand, operand: Operand, mean: Any, rstd: Any, weight: Any, *args: Any
) -> Work:
    """As layer normalisation's; `args` is N, C, H·W, the number of groups and the mask."""
    return _gradients(operand, weight, args[-1])


@formula("aten::_fused_rms_norm_backward", "torchgauge::rms_norm_backward")
def rms_norm_backward(
    gradient: Operand,
    operand: Operand,
    normalized_shape: Any,
    rstd: Any,
    weight: Any,
    output_mask: Any,
) -> Work:
    """Normalised value (1); sum of products (2), product, subtraction, product (3); weight (2)."""
    inputs, weights = output_mask
    operations = (5 + _affine(weight)) * bool(inputs) + 2 * bool(weights)
    return _per_element(operations + bool(inputs or weights), operand)


@formula("aten::native_batch_norm_backward", "aten::batch_norm_backward")
def batch_norm_backward(
    gradient: Operand,
    operand: Operand,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: Any,
    *_reserve: Any,
) -> Work:
    """As layer normalisation's; one per element for the input where statistics are frozen."""
    return _gradients(operand, weight, output_mask, frozen=not train)


@formula("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward")
def batch_norm_backward_training(
    operand: Operand, gradient: Operand, weight: Any, *_args: Any, **_named: Any
) -> Work:
    """All three gradients, in training."""
    return _gradients(operand, weight, (True, True, True))


# The sum of the gradient (1) and of its product with the centred input (3).
per_element(__name__, 4, "aten::batch_norm_backward_reduce")
# Three subtractions and two products.
per_element(__name__, 5, "aten::batch_norm_backward_elemt")
# Square and addition for the norm, and one product.
per_element(__name__, 3, "aten::_weight_norm_interface", "aten::renorm")
# Sum of products (2), product, subtraction, product (3).
per_element(__name__, 5, "aten::_weight_norm_interface_backward")
