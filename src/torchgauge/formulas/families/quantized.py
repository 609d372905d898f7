"""Products of quantised operands: integer operations, whatever comes in and goes out."""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.operand import Operand
from torchgauge.formulas.registry import formula
from torchgauge.formulas.touched import elements_of
from torchgauge.formulas.work import REAL_MAC, Work


def _integer(macs: int) -> Work:
    return Work(integer=REAL_MAC * macs)


@formula(
    "quantized::linear", "quantized::linear_relu", "quantized::linear_leaky_relu",
    "quantized::linear_tanh", "quantized::linear_dynamic", "quantized::linear_relu_dynamic",
    "quantized::linear_with_input_q_dq_qweight_dq_output_fp32",
    "quantized::linear_with_input_q_dq_qweight_dq_relu_output_fp32",
    "onednn::qlinear_pointwise", "aten::_wrapped_quantized_linear_prepacked",
    "aten::fbgemm_linear_int8_weight", "aten::fbgemm_linear_int8_weight_fp32_activation",
)  # fmt: skip
def linear(operand: Operand, *args: Any, outputs: Any, **kwargs: Any) -> Work:
    """[..., m] = linear([..., k]): the packed weights need not be opened."""
    return _integer(elements_of(operand) * outputs.shape[-1])


@formula("quantized::linear_dynamic_fp16", "quantized::linear_relu_dynamic_fp16")
def linear_fp16(operand: Operand, *args: Any, outputs: Any, **kwargs: Any) -> Work:
    """Weights in float16, products in float."""
    return Work(matmul=REAL_MAC * elements_of(operand) * outputs.shape[-1])


@formula(
    *(
        f"quantized::conv{size}d{form}{dynamic}"
        for size in (1, 2, 3)
        for form in ("", "_relu")
        for dynamic in ("", "_dynamic")
        if not (form and dynamic)
    ),
    "quantized::conv2d_add", "quantized::conv2d_add_relu",
)  # fmt: skip
def convolution(operand: Operand, packed: Any, *args: Any, outputs: Any) -> Work | None:
    """[n, co, *out]: each output takes C_in / groups · kernel, as the packed weight says."""
    weight = next((one for one in (packed, *args) if hasattr(one, "unpack")), None)
    if weight is None:
        return None
    shape = weight.unpack()[0].shape
    return _integer(elements_of(outputs) * math.prod(shape[1:]))


@formula("onednn::qconv_pointwise", "onednn::qconv2d_pointwise")
def onednn_convolution(
    operand: Operand, x_scale: Any, x_zero_point: Any, weight: Operand, *args: Any, outputs: Any,
    **kwargs: Any,
) -> Work:  # fmt: skip
    """[n, co, *out] with the weight as it is."""
    return _integer(elements_of(outputs) * math.prod(weight.shape[1:]))
