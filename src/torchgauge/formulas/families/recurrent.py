"""Recurrent layers: per step and gate a product with the input and one with the hidden state.

A layer of T steps on a batch of N takes N·T·D·G·H·(in + H) multiply-accumulates: D directions, G
gates of H units. A batch packed from sequences of several lengths has the rows that it stores.
Backward takes as many for the gradients of inputs and states, and again for those of the weights.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.families.per_element import per_element
from torchgauge.formulas.operand import Operand, Work, elements_of, product
from torchgauge.formulas.registry import formula

# Per hidden unit of an LSTM: two sums for each of four gates are 8, four activations, f·c + i·g
# are 3, tanh and o·tanh(c) are 2. Of a GRU: two sums for three gates 6, three activations,
# r·h 1, and (1 − z)·n + z·h 4. Of a plain cell: two sums and the activation.
LSTM_CELL, GRU_CELL, PLAIN_CELL = 17, 14, 3
PLAIN, LSTM, GRU = 0, 2, 3  # at::native's modes; 1 is a plain cell too
GATES = {LSTM: 4, GRU: 3}
CELLS = {LSTM: LSTM_CELL, GRU: GRU_CELL}


def _rows(operand: Operand) -> int:
    """Return steps times batch, of [t, n, in], [n, t, in] or packed [rows, in]."""
    return math.prod(operand.shape[:-1])


def _layers(operand: Operand, weights: Any, mode: int) -> Work:
    """Each matrix takes part once for each row; in every layer and direction two of them or three.

    The second is [gates · H, H or its projection], the third the projection, [projected, H].
    """
    matrices = [weight for weight in weights if len(weight.shape) == 2]
    gated = [matrix for matrix in matrices if matrix.shape[0] == matrices[0].shape[0]]
    work = product(_rows(operand) * sum(elements_of(matrix) for matrix in matrices), operand)
    units = matrices[0].shape[0] // GATES.get(mode, 1) * (len(gated) // 2)
    return work._replace(vector=CELLS.get(mode, PLAIN_CELL) * _rows(operand) * units)


def _backward(work: Work, *, weights: bool = True) -> Work:
    """The gradients of inputs and states, and those of the weights."""
    times = 1 + weights
    return work._replace(matmul=times * work.matmul, vector=2 * work.vector)


@formula("aten::mkldnn_rnn_layer")
def mkldnn_layer(
    operand: Operand, weight0: Operand, weight1: Operand, weight2: Any, weight3: Any, hx_: Any,
    cx_: Any, reverse: bool, batch_sizes: Any, mode: int, *args: Any,
) -> Work:  # fmt: skip
    """One layer in one direction: steps · gates · H · (in + H)."""
    return _layers(operand, (weight0, weight1), mode)


@formula("aten::mkldnn_rnn_layer_backward")
def mkldnn_layer_backward(
    operand: Operand, weight1: Operand, weight2: Operand, weight3: Any, weight4: Any, hx_: Any,
    cx_tmp: Any, output: Any, hy_: Any, cy_: Any, grad_output: Any, grad_hy: Any, grad_cy: Any,
    reverse: bool, mode: int, *args: Any,
) -> Work:  # fmt: skip
    """Twice the forward's products: the operator always computes the input's gradient."""
    return _backward(_layers(operand, (weight1, weight2), mode))


@formula("aten::_cudnn_rnn", "torchgauge::cudnn_rnn")
def cudnn(
    operand: Operand, weight: Any, weight_stride0: int, weight_buf: Any, hx: Any, cx: Any,
    mode: int, *args: Any,
) -> Work:  # fmt: skip
    """All layers and directions."""
    return _layers(operand, weight, mode)


@formula("aten::miopen_rnn")
def miopen(
    operand: Operand, weight: Any, weight_stride0: int, hx: Any, cx: Any, mode: int, *args: Any
) -> Work:
    """The same on AMD."""
    return _layers(operand, weight, mode)


@formula("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward", "torchgauge::cudnn_rnn_backward")
def cudnn_backward(
    operand: Operand, weight: Any, weight_stride0: int, weight_buf: Any, hx: Any, cx: Any,
    output: Any, grad_output: Any, grad_hy: Any, grad_cy: Any, mode: int, *args: Any,
) -> Work:  # fmt: skip
    """The forward's products for inputs and states, and again where weights are wanted."""
    return _backward(_layers(operand, weight, mode), weights=bool(args[-1][3]))


def _register_layers(mode: int, *names: str) -> None:
    @formula(*names)
    def layers(operand: Operand, second: Any, third: Any, fourth: Any, *args: Any) -> Work:
        """(input, hx, params, …), or (data, batch_sizes, hx, params, …) where packed."""
        params = fourth if isinstance(fourth, tuple | list) else third
        return _layers(operand, params, mode)


_register_layers(LSTM, "aten::lstm", "aten::_lstm_mps")
_register_layers(GRU, "aten::gru")
_register_layers(PLAIN, "aten::rnn_tanh", "aten::rnn_relu")


@formula("aten::lstm_mps_backward")
def lstm_mps_backward(
    grad_y: Any, grad_hy: Any, grad_cy: Any, z_state: Any, cell_state_fwd: Any, operand: Operand,
    outputs_of_layers: Any, hx: Any, params: Any, *args: Any,
) -> Work:  # fmt: skip
    """Twice the forward's products."""
    return _backward(_layers(operand, params, LSTM))


def _register_cell(mode: int, *names: str) -> None:
    @formula(*names)
    def cell(operand: Operand, hx: Any, w_ih: Operand, w_hh: Operand, *biases: Any) -> Work:
        """One step: batch · gates · H · (in + H)."""
        return _layers(operand, (w_ih, w_hh), mode)


_register_cell(LSTM, "aten::lstm_cell")
_register_cell(GRU, "aten::gru_cell")
_register_cell(PLAIN, "aten::rnn_tanh_cell", "aten::rnn_relu_cell")


# The gates' arithmetic, per element of the state, and backward twice as much; their products arrive
# by themselves.
per_element(__name__, LSTM_CELL, "aten::_thnn_fused_lstm_cell", counted=2, typed=2)
per_element(
    __name__, 2 * LSTM_CELL, "aten::_thnn_fused_lstm_cell_backward_impl", counted=2, typed=2
)
per_element(__name__, GRU_CELL, "aten::_thnn_fused_gru_cell", counted=2, typed=2)
per_element(__name__, 2 * GRU_CELL, "aten::_thnn_fused_gru_cell_backward")
