"""Fused optimizer steps: one per parameter for each elementwise operator of the step unfused.

So that a step costs the same fused, by lists (foreach) or one parameter at a time. Lists without
arithmetic of their own are in `measure.operators`: their base's work, summed.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

from typing import Any

from torchgauge.formulas.operand import Work, elements_of
from torchgauge.formulas.registry import formula

# lerp, mul, addcmul, sqrt, div, add, addcdiv.
ADAM = 7
# addcmul, sqrt, add, mul, addcdiv.
ADAGRAD = 5


def _step(operators: int, parameters: Any) -> Work:
    return Work(vector=operators * sum(map(elements_of, parameters)))


def _chosen(options: dict[str, Any], *names: str) -> int:
    """Return how many of the options are on, a gradient scale with them."""
    scaled = options.get("grad_scale") is not None
    return sum(bool(options.get(name)) for name in names) + scaled


@formula("aten::_fused_adam", "aten::_fused_adamw")
def adam(parameters: Any, *_lists: Any, **options: Any) -> Work:
    """Seven per parameter; one each for weight decay, AMSGrad, maximising and a gradient scale."""
    return _step(ADAM + _chosen(options, "weight_decay", "amsgrad", "maximize"), parameters)


@formula("aten::_fused_sgd")
def sgd(
    parameters: Any, *_lists: Any, momentum: float = 0, is_first_step: bool = False, **options: Any
) -> Work:
    """One per parameter; two for momentum after the first step, one for each further option."""
    extra_operators = _chosen(options, "weight_decay", "nesterov", "maximize")
    extra_operators += 2 if momentum and not is_first_step else 0
    return _step(1 + extra_operators, parameters)


@formula("aten::_fused_adagrad")
def adagrad(parameters: Any, *_lists: Any, **options: Any) -> Work:
    """Five per parameter; one each for weight decay, maximising and a gradient scale."""
    return _step(ADAGRAD + _chosen(options, "weight_decay", "maximize"), parameters)


@formula("aten::_amp_foreach_non_finite_check_and_unscale")
def unscale(gradients: Any, found_inf: Any, inv_scale: Any) -> Work:
    """A comparison and a product: two per element of the gradients."""
    return _step(2, gradients)


@formula("aten::_amp_update_scale")
def update_scale(scale: Any, *_args: Any) -> Work:
    """One per element of the scale, which has one."""
    return _step(1, [scale])
