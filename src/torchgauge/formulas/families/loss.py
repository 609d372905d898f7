"""Losses: one per element for the loss of each, and one more where a reduction follows."""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

from typing import Any

from torchgauge.formulas.families.per_element import per_element
from torchgauge.formulas.operand import Operand, Work, elements, vector
from torchgauge.formulas.promotion import pointwise_work
from torchgauge.formulas.registry import formula

MEAN = 1  # the operators' default: reduction to the mean; 0 is none, 2 is the sum


def _reduced(operand: Operand, reduction: int) -> Work:
    return vector(elements(operand) * (1 if reduction == 0 else 2), operand)


@formula("aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss", "aten::soft_margin_loss")
def pair_loss(
    operand: Operand, target: Operand, reduction: int = MEAN, *_r: Any, **_n: Any
) -> Work:
    """One per element, and one for the reduction."""
    return _reduced(operand, reduction)


@formula("aten::multilabel_margin_loss_forward")
def multilabel_margin_loss(operand: Operand, target: Operand, reduction: int = MEAN) -> Work:
    """One per element and possible target, at most: each class is compared with every target."""
    classes = operand.shape[-1] if operand.shape else 1
    return vector(elements(operand) * classes, operand)._replace(estimated=True)


@formula("aten::multi_margin_loss")
def multi_margin_loss(
    operand: Operand,
    target: Operand,
    p: Any = 1,
    margin: Any = 1,
    weight: Any = None,
    reduction: int = MEAN,
) -> Work:
    """One per element, and one for the sum over classes."""
    return vector(2 * elements(operand), operand)


@formula("aten::binary_cross_entropy", "aten::binary_cross_entropy_with_logits")
def binary_cross_entropy(
    operand: Operand,
    target: Operand,
    weight: Any = None,
    *args: Any,
    reduction: int | None = None,
    pos_weight: Any = None,
) -> Work:
    """One per element, and one for the reduction."""
    if reduction is None:
        reduction = args[-1] if args and isinstance(args[-1], int) else MEAN
    return _reduced(operand, reduction)


@formula("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss(
    operand: Operand, target: Operand, weight: Any, reduction: int, *_args: Any, **_named: Any
) -> Work:
    """One per target: the sign, or the sum; one more with weights, and one for the reduction."""
    rate = 1 + (weight is not None) + (reduction != 0)
    return vector(rate * elements(target), operand)


# One per target.
per_element(__name__, 1, "aten::nll_loss_backward", "aten::nll_loss2d_backward", counted=2)


@formula(
    "aten::mse_loss_backward",
    "aten::smooth_l1_loss_backward",
    "aten::huber_loss_backward",
    "aten::soft_margin_loss_backward",
    "aten::binary_cross_entropy_backward",
    "aten::multi_margin_loss_backward",
    "aten::multilabel_margin_loss_backward",
)
def loss_backward(*args: Any, outputs: Any, **_named: Any) -> Work:
    """One per element of the gradient."""
    return pointwise_work("", args, outputs)


def _lattice(log_probs: Operand, targets: Operand) -> int:
    """Return the cells of the alignment lattice: T·N·(2L + 1)."""
    time, batch = log_probs.shape[0], (1 if len(log_probs.shape) == 2 else log_probs.shape[1])
    longest = targets.shape[-1] if len(targets.shape) == 2 else -(-elements(targets) // batch)
    return int(time * batch * (2 * longest + 1))


@formula("aten::_ctc_loss", "aten::_cudnn_ctc_loss", "aten::miopen_ctc_loss")
def ctc_loss(log_probs: Operand, targets: Operand, *_args: Any, **_named: Any) -> Work:
    """Ten per cell of the T × (2L + 1) lattice: a logarithm of a sum of three, and a product.

    Source: Graves et al. (2006), equation 6. Estimated: lengths within the batch are not seen.
    """
    return Work(vector=10 * _lattice(log_probs, targets), estimated=True)


@formula("aten::_ctc_loss_backward")
def ctc_loss_backward(
    gradient: Operand, log_probs: Operand, targets: Operand, *_args: Any, **_named: Any
) -> Work:
    """Ten per cell for the backward variables, and three per element of the gradient."""
    work = 10 * _lattice(log_probs, targets) + 3 * elements(log_probs)
    return Work(vector=work, estimated=True)
