"""Pooling: each output is a reduction of one window, and costs one per element of the window.

That is k − 1 additions and a division for an average, k comparisons for a maximum. Padding counts
as part of the window. A backward pass adds the gradient to what it came from: the window's elements
for an average, one for a maximum.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.operand import Operand, Work, elements, tensors, vector
from torchgauge.formulas.registry import formula


def _window(kernel: Any, dimensions: int) -> int:
    if isinstance(kernel, int):
        return int(kernel**dimensions)
    return int(kernel[0] ** dimensions if len(kernel) == 1 else math.prod(kernel))


def _pooled(dimensions: int, operand: Operand, kernel: Any, outputs: Any) -> Work:
    result = next(tensors(outputs))
    return vector(elements(result) * _window(kernel, dimensions), operand)


@formula(
    "aten::avg_pool1d", "aten::max_pool1d", "aten::quantized_max_pool1d", "quantized::max_pool1d"
)
def pool1d(operand: Operand, kernel_size: Any, *_args: Any, outputs: Any, **_named: Any) -> Work:
    """Window size per output element."""
    return _pooled(1, operand, kernel_size, outputs)


@formula(
    "aten::avg_pool2d",
    "aten::max_pool2d_with_indices",
    "aten::max_pool2d",
    "aten::mkldnn_max_pool2d",
    "aten::quantized_max_pool2d",
    "quantized::max_pool2d",
    "aten::fractional_max_pool2d",
)
def pool2d(operand: Operand, kernel_size: Any, *_args: Any, outputs: Any, **_named: Any) -> Work:
    """Window size per output element."""
    return _pooled(2, operand, kernel_size, outputs)


@formula(
    "aten::avg_pool3d",
    "aten::max_pool3d_with_indices",
    "aten::max_pool3d",
    "aten::mkldnn_max_pool3d",
    "aten::quantized_max_pool3d",
    "aten::fractional_max_pool3d",
)
def pool3d(operand: Operand, kernel_size: Any, *_args: Any, outputs: Any, **_named: Any) -> Work:
    """Window size per output element."""
    return _pooled(3, operand, kernel_size, outputs)


@formula("aten::avg_pool2d_backward")
def avg_pool2d_backward(gradient: Operand, operand: Operand, kernel_size: Any, *_args: Any) -> Work:
    """Window size per gradient element."""
    return vector(elements(gradient) * _window(kernel_size, 2), gradient)


@formula("aten::avg_pool3d_backward")
def avg_pool3d_backward(gradient: Operand, operand: Operand, kernel_size: Any, *_args: Any) -> Work:
    """Window size per gradient element."""
    return vector(elements(gradient) * _window(kernel_size, 3), gradient)


@formula(
    "aten::max_pool2d_with_indices_backward",
    "aten::max_pool3d_with_indices_backward",
    "aten::max_pool2d_backward",
    "aten::mkldnn_max_pool2d_backward",
    "aten::mkldnn_max_pool3d_backward",
    "aten::adaptive_max_pool2d_backward",
    "aten::adaptive_max_pool3d_backward",
    "aten::fractional_max_pool2d_backward",
    "aten::fractional_max_pool3d_backward",
)
def max_pool_backward(gradient: Operand, *_args: Any, **_named: Any) -> Work:
    """One addition per gradient element, at the place of its maximum."""
    return vector(elements(gradient), gradient)


def _windows(size: int, outputs: int) -> int:
    """Return the sum of window lengths when `size` is divided among `outputs` overlapping windows.

    Window i runs from floor(i·size/outputs) to ceil((i + 1)·size/outputs).
    """
    return sum(-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs))


def _adaptive(dimensions: int, operand: Operand, pooled: Operand) -> Work:
    inside, outside = operand.shape[-dimensions:], pooled.shape[-dimensions:]
    per_channel = math.prod(map(_windows, inside, outside))
    return vector(math.prod(pooled.shape[:-dimensions]) * per_channel, operand)


@formula("aten::adaptive_avg_pool1d", "aten::adaptive_max_pool1d")
def adaptive_pool1d(operand: Operand, output_size: Any, *, outputs: Any) -> Work:
    """The sizes of all windows, which differ where the output does not divide the input."""
    return _adaptive(1, operand, next(tensors(outputs)))


@formula(
    "aten::_adaptive_avg_pool2d",
    "aten::adaptive_avg_pool2d",
    "aten::mkldnn_adaptive_avg_pool2d",
    "aten::adaptive_max_pool2d",
)
def adaptive_pool2d(operand: Operand, output_size: Any, *, outputs: Any) -> Work:
    """The sizes of all windows."""
    return _adaptive(2, operand, next(tensors(outputs)))


@formula("aten::_adaptive_avg_pool3d", "aten::adaptive_avg_pool3d", "aten::adaptive_max_pool3d")
def adaptive_pool3d(operand: Operand, output_size: Any, *, outputs: Any) -> Work:
    """The sizes of all windows."""
    return _adaptive(3, operand, next(tensors(outputs)))


@formula("aten::_adaptive_avg_pool2d_backward", "aten::mkldnn_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(gradient: Operand, operand: Operand) -> Work:
    """As forward: the gradient is added to every element of its window."""
    return _adaptive(2, operand, gradient)


@formula("aten::_adaptive_avg_pool3d_backward", "aten::adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(gradient: Operand, operand: Operand) -> Work:
    """As forward: the gradient is added to every element of its window."""
    return _adaptive(3, operand, gradient)
