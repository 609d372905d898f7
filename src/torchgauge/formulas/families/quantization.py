"""Quantised operators: conversions, products, recurrent layers."""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.families.recurrent import CELLS, GATES, GRU, LSTM, PLAIN, PLAIN_CELL
from torchgauge.formulas.operand import (
    FREE,
    REAL_MAC,
    Operand,
    Work,
    elements,
    elements_of,
    is_integer,
)
from torchgauge.formulas.promotion import pointwise_work
from torchgauge.formulas.registry import formula

CASTS = ["aten::quantize_per_tensor", "aten::quantize_per_channel", "aten::dequantize"]
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


def _register_pointwise(operations: int, *names: str) -> None:
    @formula(*names)
    def pointwise(*args: Any, outputs: Any, **_named: Any) -> Work:
        return pointwise_work("", args, outputs, operations)


_register_pointwise(1, *CASTS, *ELEMENTWISE, *OUT)
# A product and an addition.
_register_pointwise(2, *SCALED)
# As on floats, with weight and bias.
_register_pointwise(8, *NORMALISED)
_register_pointwise(5, "quantized::softmax")


@formula(
    "aten::quantize_per_tensor_dynamic",
    "aten::_fused_moving_avg_obs_fq_helper",
    "aten::_fused_moving_avg_obs_fq_helper_functional",
)
def observed(operand: Any, *_args: Any, outputs: Any, **_named: Any) -> Work:
    """The smallest and the largest, and the quantised value: three per element."""
    return pointwise_work("", (operand,), outputs, 3)


@formula(*BAGS)
def bag(weight: Any, indices: Operand, *_args: Any, outputs: Any, **_named: Any) -> Work:
    """A product and an addition to dequantise each element gathered, and one to add it up."""
    return Work(vector=3 * elements(indices) * outputs.shape[-1])


@formula(*COPIES, *PACKED)
def copied(*_args: Any, **_named: Any) -> Work:
    """None: values move."""
    return FREE


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


def _work(macs: int, cells: int, mode: int, *, on_integers: bool) -> Work:
    elementwise = CELLS.get(mode, PLAIN_CELL) * cells
    if on_integers:
        return Work(integer=REAL_MAC * macs, vector=elementwise)
    return Work(matmul=REAL_MAC * macs, vector=elementwise)


def _register_layers(mode: int, name: str) -> None:
    @formula(name)
    def layers(
        operand: Operand, second: Any, third: Any, fourth: Any, *args: Any, **kwargs: Any
    ) -> Work:
        """(input, hx, params, …), or (data, batch_sizes, hx, params, …) where packed."""
        packed = isinstance(fourth, tuple | list)
        state, params = (third, fourth) if packed else (second, third)
        count, _, _, bidirectional, *_ = args[1:] if packed else args
        hidden = (state[0] if mode == LSTM else state).shape[-1]
        directions = 1 + bool(bidirectional)
        rows = directions * math.prod(operand.shape[:-1])
        inner = operand.shape[-1] + (count - 1) * directions * hidden  # the inputs of all layers
        macs = rows * GATES[mode] * hidden * (inner + count * hidden)
        return _work(macs, rows * count * hidden, mode, on_integers=not _float16(params))


def _float16(params: Any) -> bool:
    """Return True where the packed weights say that they are float16."""
    try:
        return bool(params[0].__getstate__()[0][0] == "quantized_fp16")
    except (AttributeError, IndexError, RuntimeError, TypeError):
        return False


_register_layers(LSTM, "aten::quantized_lstm")
_register_layers(GRU, "aten::quantized_gru")


def _register_cell(mode: int, name: str) -> None:
    @formula(name)
    def cell(operand: Operand, hx: Any, w_ih: Any, w_hh: Any, *biases: Any) -> Work:
        """One step: batch · gates · H · (in + H)."""
        batch, inner = operand.shape
        hidden = (hx[0] if mode == LSTM else hx).shape[-1]
        macs = batch * GATES.get(mode, 1) * hidden * (inner + hidden)
        return _work(macs, batch * hidden, mode, on_integers=_integers(w_ih))


def _integers(packed: Any) -> bool:
    try:
        return is_integer(packed.unpack()[0])
    except (AttributeError, IndexError, RuntimeError, TypeError):
        return True


_register_cell(LSTM, "quantized::quantized_lstm_cell_dynamic")
_register_cell(GRU, "quantized::quantized_gru_cell_dynamic")
_register_cell(PLAIN, "quantized::quantized_rnn_tanh_cell_dynamic")
_register_cell(PLAIN, "quantized::quantized_rnn_relu_cell_dynamic")
