"""Recurrent layers: per step and gate a product with the input and one with the hidden state."""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.operand import Operand
from torchgauge.formulas.registry import formula
from torchgauge.formulas.touched import elements_of
from torchgauge.formulas.work import Work, product, vector

# Per hidden unit of an LSTM: two sums for each of four gates are 8, four activations, f·c + i·g
# are 3, tanh and o·tanh(c) are 2. Of a GRU: two sums for three gates 6, three activations,
# r·h 1, and (1 − z)·n + z·h 4. Of a plain cell: two sums and the activation.
LSTM_CELL, GRU_CELL, PLAIN_CELL = 17, 14, 3
LSTM_MODE, GRU_MODE = 2, 3  # at::native::RNNMode; 0 and 1 are plain cells


def _per_unit(mode: int) -> int:
    return {LSTM_MODE: LSTM_CELL, GRU_MODE: GRU_CELL}.get(mode, PLAIN_CELL)


def _gates(mode: int) -> int:
    return {LSTM_MODE: 4, GRU_MODE: 3}.get(mode, 1)


def _steps(operand: Operand) -> int:
    """Return steps times batch, of [t, n, in], [n, t, in] or packed [rows, in]."""
    return math.prod(operand.shape[:-1])


def _layers(operand: Operand, weights: Any, mode: int) -> Work:
    steps = _steps(operand)
    matrices = [weight for weight in weights if len(weight.shape) == 2]
    units = sum(weight.shape[0] for weight in weights if len(weight.shape) == 2)
    work = product(steps * sum(elements_of(matrix) for matrix in matrices), operand)
    # A gate's row is in two matrices.
    hidden = units // 2 // _gates(mode)
    return work._replace(vector=_per_unit(mode) * steps * hidden)


def _twice(work: Work) -> Work:
    """The gradients of the inputs, and those of the weights."""
    return work._replace(matmul=2 * work.matmul, vector=2 * work.vector, integer=2 * work.integer)


@formula("aten::mkldnn_rnn_layer")
def mkldnn_layer(
    operand: Operand, weight0: Operand, weight1: Operand, weight2: Any, weight3: Any, hx_: Any,
    cx_: Any, reverse: bool, batch_sizes: Any, mode: int, *args: Any,
) -> Work:  # fmt: skip
    """One layer in one direction: steps · gates · H · (in + H)."""
    return _layers(operand, (weight0, weight1), mode)


@formula("aten::mkldnn_rnn_layer_backward")
def mkldnn_layer_backward(
    operand: Operand, weight1: Operand, weight2: Operand, *args: Any, **kwargs: Any
) -> Work:
    """Twice the forward's products."""
    mode = args[11] if len(args) > 11 else LSTM_MODE
    return _twice(_layers(operand, (weight1, weight2), mode))


@formula("aten::_cudnn_rnn")
def cudnn(
    operand: Operand, weight: Any, weight_stride0: int, weight_buf: Any, hx: Any, cx: Any,
    mode: int, *args: Any,
) -> Work:  # fmt: skip
    """All layers and directions: each matrix once for each step."""
    return _layers(operand, weight, mode)


@formula("aten::miopen_rnn")
def miopen(
    operand: Operand, weight: Any, weight_stride0: int, hx: Any, cx: Any, mode: int, *args: Any
) -> Work:
    """The same on AMD."""
    return _layers(operand, weight, mode)


@formula("aten::_cudnn_rnn_backward")
def cudnn_backward(
    operand: Operand, weight: Any, weight_stride0: int, weight_buf: Any, hx: Any, cx: Any,
    output: Any, grad_output: Any, grad_hy: Any, grad_cy: Any, mode: int, *args: Any,
) -> Work:  # fmt: skip
    """Twice the forward's products."""
    return _twice(_layers(operand, weight, mode))


@formula("aten::miopen_rnn_backward")
def miopen_backward(
    operand: Operand, weight: Any, weight_stride0: int, weight_buf: Any, hx: Any, cx: Any,
    output: Any, grad_output: Any, grad_hy: Any, grad_cy: Any, mode: int, *args: Any,
) -> Work:  # fmt: skip
    """The same on AMD."""
    return _twice(_layers(operand, weight, mode))


@formula("aten::_thnn_fused_lstm_cell")
def lstm_cell(
    input_gates: Operand, hidden_gates: Operand, cx: Operand, input_bias: Any = None,
    hidden_bias: Any = None,
) -> Work:  # fmt: skip
    """The gates' arithmetic; their products arrive by themselves."""
    return vector(LSTM_CELL * elements_of(cx), cx)


@formula("aten::_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    grad_hy: Any, grad_cy: Any, cx: Operand, cy: Any, workspace: Any, has_bias: bool
) -> Work:
    """Twice the forward's arithmetic."""
    return vector(2 * LSTM_CELL * elements_of(cx), cx)


@formula("aten::_thnn_fused_gru_cell")
def gru_cell(
    input_gates: Operand, hidden_gates: Operand, hx: Operand, input_bias: Any = None,
    hidden_bias: Any = None,
) -> Work:  # fmt: skip
    """The gates' arithmetic; their products arrive by themselves."""
    return vector(GRU_CELL * elements_of(hx), hx)


@formula("aten::_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: Operand, workspace: Any, has_bias: bool) -> Work:
    """Twice the forward's arithmetic."""
    return vector(2 * GRU_CELL * elements_of(grad_hy), grad_hy)
