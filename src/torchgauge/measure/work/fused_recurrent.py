"""Recurrent layers and cells by the operators that CUDA would run: cuDNN's layers, fused cells.

cuDNN's operator takes all steps, layers and directions at once, where meta tensors take a product
per step. It is `torchgauge::cudnn_rnn` here: torch's own returns no reserve without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import linear

from torchgauge.formulas.families.recurrent import GATES, LSTM
from torchgauge.measure.work.internals import aten_operator

_OPERANDS = (
    "Tensor input, Tensor[] weight, int weight_stride0, Tensor? weight_buf, Tensor hx, Tensor? cx"
)
_OPTIONS = (
    "int mode, int hidden_size, int proj_size, int num_layers, bool batch_first, float dropout, "
    "bool train, bool bidirectional, int[] batch_sizes, Tensor? dropout_state"
)


def layers(mode: int) -> Callable[..., Any]:
    """Return what stands for `aten::lstm.input` and its like."""

    def replacement(
        x: torch.Tensor, hx: Any, params: Any, _has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        options = (num_layers, batch_first, dropout, train, bidirectional)
        return _run(mode, x, hx, params, options, [])

    return replacement


def packed_layers(mode: int) -> Callable[..., Any]:
    """Return what stands for `aten::lstm.data` and its like: sequences of several lengths."""

    def replacement(
        x: torch.Tensor, batch_sizes: torch.Tensor, hx: Any, params: Any, _has_biases: bool,
        num_layers: int, dropout: float, train: bool, bidirectional: bool,
    ) -> Any:  # fmt: skip
        if batch_sizes.is_meta:
            return None
        options = (num_layers, False, dropout, train, bidirectional)
        return _run(mode, x, hx, params, options, batch_sizes.tolist())

    return replacement


def _run(
    mode: int, x: torch.Tensor, hx: Any, params: Any, options: tuple[Any, ...], sizes: list[int]
) -> Any:
    state, cell = hx if mode == LSTM else (hx, None)
    hidden = (state if cell is None else cell).shape[-1]
    projected = state.shape[-1] if state.shape[-1] != hidden else 0
    stride = len(params) // state.shape[0]
    arguments = (mode, hidden, projected, *options, sizes, None)
    results = _Recurrent.apply(stride, arguments, x, state, cell, *params)  # type: ignore[no-untyped-call]
    output, hy, cy = results
    return (output, hy, cy) if mode == LSTM else (output, hy)


class _Recurrent(torch.autograd.Function):
    """cuDNN's recurrent layers by operators of shapes alone."""

    @staticmethod
    def forward(
        ctx: Any, stride: int, arguments: Any, x: torch.Tensor, hx: torch.Tensor, cx: Any,
        *weights: Any,
    ) -> Any:  # fmt: skip
        output, hy, cy, reserve, _ = torch.ops.torchgauge.cudnn_rnn(
            x, weights, stride, None, hx, cx, *arguments
        )
        ctx.save_for_backward(x, hx, cx, output, reserve, *weights)
        ctx.stride, ctx.arguments = stride, arguments
        return output, hy, cy

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, hx, cx, output, reserve, *weights = ctx.saved_tensors
        needs_gradient = ctx.needs_input_grad
        mask = [needs_gradient[2], needs_gradient[3], needs_gradient[4], any(needs_gradient[5:])]
        for_x, for_hx, for_cx, for_weights = torch.ops.torchgauge.cudnn_rnn_backward(
            x, weights, ctx.stride, None, hx, cx, output, *gradients[: 2 + (cx is not None)],
            *([None] * (cx is None)), *ctx.arguments, reserve, mask,
        )  # fmt: skip
        return None, None, for_x, for_hx, for_cx if mask[2] else None, *for_weights


def _layer_shapes(
    x: torch.Tensor, weight: Any, stride: int, _buffer: Any, hx: torch.Tensor, cx: Any, mode: int,
    hidden: int, projected: int, num_layers: int, *options: Any,
) -> Any:  # fmt: skip
    """Make the results of cuDNN's layers, and a reserve as large as what the backward pass reads.

    That is gates and cells of every step, and the results of all layers but the last. How cuDNN
    pads them is not known.
    """
    outputs = aten_operator("_cudnn_rnn")(
        x, weight, stride, x.new_empty(0), hx, cx, mode, hidden, projected, num_layers, *options
    )
    width = outputs[0].shape[-1]
    per_step = hx.shape[0] * (GATES.get(mode, 0) + (mode == LSTM)) * hidden
    per_step += (num_layers - 1) * width
    train, rows = options[2], outputs[0].numel() // width
    size = rows * per_step * x.itemsize if train else 0
    return *outputs[:3], x.new_empty(size, dtype=torch.uint8), x.new_empty(0)


def _layer_gradients(
    x: torch.Tensor, weight: Any, _stride: int, _buffer: Any, hx: torch.Tensor, cx: Any, *_: Any
) -> Any:
    for_cx = x.new_empty(0) if cx is None else torch.empty_like(cx)
    return torch.empty_like(x), torch.empty_like(hx), for_cx, [*map(torch.empty_like, weight)]


def lstm_cell(
    x: torch.Tensor, hx: Any, w_ih: torch.Tensor, w_hh: torch.Tensor, *biases: Any
) -> Any:
    """Run what CUDA runs for a step of an LSTM."""
    gates = linear(x, w_ih), linear(hx[0], w_hh)
    return aten_operator("_thnn_fused_lstm_cell")(*gates, hx[1], *biases)[:2]


def gru_cell(
    x: torch.Tensor, hx: torch.Tensor, w_ih: torch.Tensor, w_hh: torch.Tensor, *biases: Any
) -> Any:
    """Run what CUDA runs for a step of a GRU."""
    gates = linear(x, w_ih), linear(hx, w_hh)
    return aten_operator("_thnn_fused_gru_cell")(*gates, hx, *biases)[0]


def _gru_shapes(gates: torch.Tensor, _hidden_gates: Any, hx: torch.Tensor, *_biases: Any) -> Any:
    return torch.empty_like(hx), gates.new_empty(hx.shape[0], 5 * hx.shape[1])


def _gru_gradients(gradient: torch.Tensor, _workspace: Any, has_bias: bool) -> Any:
    rows, hidden = gradient.shape
    gates = [gradient.new_empty(rows, 3 * hidden) for _ in "ih"]
    biases = [gradient.new_empty(3 * hidden) if has_bias else gradient.new_empty(0) for _ in "ih"]
    return *gates, torch.empty_like(gradient), *biases


# Operators of ours by their schemas, and torch's without a meta kernel: what they return.
OPERATORS: dict[str, Callable[..., Any]] = {
    f"cudnn_rnn({_OPERANDS}, {_OPTIONS}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)": _layer_shapes,
    f"cudnn_rnn_backward({_OPERANDS}, Tensor output, Tensor? grad_output, Tensor? grad_hy, "
    f"Tensor? grad_cy, {_OPTIONS}, Tensor reserve, bool[4] output_mask) "
    "-> (Tensor, Tensor, Tensor, Tensor[])": _layer_gradients,
}
SHAPES: dict[str, Callable[..., Any]] = {
    "_thnn_fused_gru_cell": _gru_shapes,
    "_thnn_fused_gru_cell_backward": _gru_gradients,
}
