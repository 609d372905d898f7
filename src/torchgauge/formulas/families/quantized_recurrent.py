"""Recurrent layers on packed weights: as the float ones, their products on integers or float16.

The packed weights need not be opened: their sizes follow from those of inputs and states.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.families.recurrent import CELLS, GATES, GRU, LSTM, PLAIN, PLAIN_CELL
from torchgauge.formulas.operand import Operand, is_integer
from torchgauge.formulas.registry import formula
from torchgauge.formulas.work import REAL_MAC, Work


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
