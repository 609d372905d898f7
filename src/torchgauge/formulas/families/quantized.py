"""Products of quantised operands: integer operations, whatever comes in and goes out.

Weights packed as float16 take part in float products.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.operand import Operand
from torchgauge.formulas.registry import formula
from torchgauge.formulas.touched import elements_of
from torchgauge.formulas.work import REAL_MAC, Work

LINEAR = [
    *("linear", "linear_relu", "linear_leaky_relu", "linear_tanh"),
    *("linear_dynamic", "linear_relu_dynamic"),
    "linear_with_input_q_dq_qweight_dq_output_fp32",
    "linear_with_input_q_dq_qweight_dq_relu_output_fp32",
]
LINEAR_FLOAT16 = [
    "quantized::linear_dynamic_fp16",
    "quantized::linear_relu_dynamic_fp16",
    "quantized::linear_dynamic_fp16_unpacked_weight",
    "onednn::linear_dynamic_fp16",
    "onednn::linear_relu_dynamic_fp16",
    "aten::fbgemm_linear_fp16_weight",
    "aten::fbgemm_linear_fp16_weight_fp32_activation",
    "_quantized::wrapped_fbgemm_linear_fp16_weight",
]
CONVOLUTIONS = [
    *(f"quantized::conv{size}d{form}" for size in "123" for form in ("", "_relu", "_dynamic")),
    *("_quantized::conv2d", "_quantized::conv2d_relu"),
    *("_quantized::conv3d", "_quantized::conv3d_relu"),
]
TRANSPOSED = [
    *(f"quantized::conv_transpose{size}d{form}" for size in "123" for form in ("", "_dynamic")),
    *("_quantized::conv_transpose1d", "_quantized::conv_transpose2d"),
]


def _integer(macs: int) -> Work:
    return Work(integer=REAL_MAC * macs)


@formula(
    *(f"quantized::{name}" for name in LINEAR),
    "_quantized::linear", "_quantized::linear_dynamic", "_quantized::wrapped_quantized_linear",
    "_quantized::_wrapped_quantized_linear_prepacked", "onednn::qlinear_pointwise",
    "aten::_wrapped_quantized_linear_prepacked", "aten::fbgemm_linear_int8_weight",
    "aten::fbgemm_linear_int8_weight_fp32_activation",
)  # fmt: skip
def linear(operand: Operand, *args: Any, outputs: Any, **kwargs: Any) -> Work:
    """[..., m] = linear([..., k]): the packed weights need not be opened."""
    return _integer(elements_of(operand) * outputs.shape[-1])


@formula(*LINEAR_FLOAT16)
def linear_float16(operand: Operand, *args: Any, outputs: Any, **kwargs: Any) -> Work:
    """Weights in float16, products in float."""
    return Work(matmul=REAL_MAC * elements_of(operand) * outputs.shape[-1])


@formula(*CONVOLUTIONS)
def convolution(operand: Operand, packed: Any, *args: Any, outputs: Any) -> Work | None:
    """[n, co, *out]: each output takes C_in / groups · kernel, as the packed weight says."""
    return _packed_work(outputs, packed)


@formula("quantized::conv2d_add", "quantized::conv2d_add_relu")
def convolution_added(
    operand: Operand, accumulated: Any, packed: Any, *args: Any, outputs: Any
) -> Work | None:
    """The same, the sum not counted."""
    return _packed_work(outputs, packed)


@formula(*TRANSPOSED)
def transposed(operand: Operand, packed: Any, *args: Any) -> Work | None:
    """[n, ci, *in]: each input takes C_out / groups · kernel."""
    return _packed_work(operand, packed)


def _packed_work(counted: Operand, packed: Any) -> Work | None:
    try:
        shape = packed.unpack()[0].shape
    except (
        AttributeError,
        IndexError,
        RuntimeError,
        TypeError,
    ):  # a description, or a backend's own
        return None
    return _integer(elements_of(counted) * math.prod(shape[1:]))


@formula(
    "onednn::qconv_pointwise", "onednn::qconv1d_pointwise", "onednn::qconv2d_pointwise",
    "onednn::qconv3d_pointwise",
)  # fmt: skip
def onednn_convolution(
    operand: Operand, x_scale: Any, x_zero_point: Any, weight: Operand, *args: Any, outputs: Any
) -> Work:  # fmt: skip
    """[n, co, *out]; a packed weight has its groups before it, so that its elements tell."""
    return _integer(elements_of(outputs) * (elements_of(weight) // outputs.shape[1]))
