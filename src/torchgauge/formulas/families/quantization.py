"""Quantising, and elementwise operators on quantised tensors: integer work, one per element.

Tensors made float from integers count as elementwise work on floats.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

from typing import Any

from torchgauge.formulas.elementwise import pointwise_work
from torchgauge.formulas.operand import Operand, elements
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
NORMALISED = ["quantized::layer_norm", "quantized::group_norm", "quantized::instance_norm"]
SCALED = [
    f"quantized::{name}"
    for name in [
        *("batch_norm", "batch_norm_relu", "batch_norm1d", "batch_norm1d_relu", "batch_norm2d"),
        *("batch_norm2d_relu", "batch_norm3d", "batch_norm3d_relu"),
        *("embedding_byte", "embedding_4bit"),
    ]
]
BAGS = [
    f"quantized::embedding_bag_{name}"
    for name in [
        *("byte", "4bit"),
        *("byte_rowwise_offsets", "4bit_rowwise_offsets", "2bit_rowwise_offsets"),
    ]
]
# Weights brought into the order of a kernel, and back.
PACKED = [
    f"quantized::{name}"
    for name in [
        *(f"conv{d}d_prepack" for d in (1, 2, 3)),
        *(f"conv_transpose{d}d_prepack" for d in (1, 2, 3)),
        *("conv_prepack", "linear_prepack", "linear_prepack_fp16", "linear_prepack_legacy"),
        *("linear_prepack_fp16_legacy", "linear_unpack", "linear_unpack_fp16"),
        *("embedding_bag_prepack", "make_quantized_cell_params"),
        *("make_quantized_cell_params_dynamic", "make_quantized_cell_params_fp16"),
        *(f"embedding_bag_{bits}_prepack" for bits in ("byte", "4bit", "2bit")),
        *(f"embedding_bag_{bits}_unpack" for bits in ("byte", "4bit", "2bit")),
    ]
]
COPIES = [
    f"quantized::{name}" for name in ("cat", "cat_relu", "cat_out", "cat_relu_out", "dropout")
]


@formula(*CASTS, *ELEMENTWISE, *OUT)
def elementwise(*args: Any, outputs: Any, **_named: Any) -> Work:
    """One per output element."""
    return pointwise_work("", args, outputs)


@formula("aten::quantize_per_tensor_dynamic", "aten::_fused_moving_avg_obs_fq_helper")
def observed(operand: Any, *_args: Any, outputs: Any, **_named: Any) -> Work:
    """The smallest and the largest, and the quantised value: three per element."""
    return pointwise_work("", (operand,), outputs, 3)


@formula("aten::_fused_moving_avg_obs_fq_helper_functional")
def observed_functional(operand: Any, *_args: Any, outputs: Any, **_named: Any) -> Work:
    """As the form that updates its observer in place."""
    return pointwise_work("", (operand,), outputs, 3)


@formula(*SCALED)
def scaled(*args: Any, outputs: Any, **_named: Any) -> Work:
    """A product and an addition: two per output element."""
    return pointwise_work("", args, outputs, 2)


@formula(*NORMALISED)
def normalised(*args: Any, outputs: Any, **_named: Any) -> Work:
    """As on floats, with weight and bias: eight per element."""
    return pointwise_work("", args, outputs, 8)


@formula("quantized::softmax")
def softmax(*args: Any, outputs: Any, **_named: Any) -> Work:
    """As on floats: five per element."""
    return pointwise_work("", args, outputs, 5)


@formula(*BAGS)
def bag(weight: Any, indices: Operand, *_args: Any, outputs: Any, **_named: Any) -> Work:
    """A product and an addition to dequantise each element gathered, and one to add it up."""
    return Work(vector=3 * elements(indices) * outputs.shape[-1])


@formula(*COPIES, *PACKED)
def copied(*_args: Any, **_named: Any) -> Work:
    """None: values move."""
    return FREE
