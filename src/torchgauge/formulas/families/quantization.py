"""Quantising, and elementwise operators on quantised tensors: integer work, one per element.

Tensors made float from integers count as elementwise work on floats.
"""

from __future__ import annotations

from typing import Any

from torchgauge.formulas.elementwise import pointwise_work
from torchgauge.formulas.registry import formula
from torchgauge.formulas.work import FREE, Work

CASTS = [
    "aten::quantize_per_tensor",
    "aten::quantize_per_channel",
    "aten::dequantize",
]
ELEMENTWISE = [
    f"quantized::{name}"
    for name in [
        *("add", "add_relu", "add_scalar", "add_scalar_relu", "mul", "mul_relu", "mul_scalar"),
        *("mul_scalar_relu", "celu", "clamp", "elu", "hardswish", "leaky_relu", "prelu", "relu6"),
        *("sigmoid", "threshold"),
    ]
]
OUT = [
    f"quantized::{name}_out"
    for name in [
        *("add", "add_relu", "add_scalar", "add_scalar_relu"),
        *("mul", "mul_relu", "mul_scalar", "mul_scalar_relu"),
    ]
]
COPIES = ["quantized::cat", "quantized::cat_relu", "quantized::dropout"]


@formula(*CASTS, *ELEMENTWISE, *OUT)
def elementwise(*args: Any, outputs: Any, **_named: Any) -> Work:
    """One per output element."""
    return pointwise_work("", args, outputs)


@formula("aten::quantize_per_tensor_dynamic", "aten::_fused_moving_avg_obs_fq_helper")
def observed(operand: Any, *_rest: Any, outputs: Any, **_named: Any) -> Work:
    """The smallest and the largest, and the quantised value: three per element."""
    return pointwise_work("", (operand,), outputs, 3)


@formula("aten::_fused_moving_avg_obs_fq_helper_functional")
def observed_functional(operand: Any, *_rest: Any, outputs: Any, **_named: Any) -> Work:
    """As the form that updates its observer in place."""
    return pointwise_work("", (operand,), outputs, 3)


@formula(*COPIES)
def copied(*_args: Any, **_named: Any) -> Work:
    """None: values move."""
    return FREE
