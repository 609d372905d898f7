"""Pooling: each output is a reduction of one window, and costs one per element of the window.

That is k − 1 additions and a division for an average, k comparisons for a maximum. Padding counts
as part of the window. A backward pass adds the gradient to what it came from: the window's elements
for an average, one for a maximum.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.families.per_element import per_element
from torchgauge.formulas.operand import Operand, Work, elements, tensors, vector
from torchgauge.formulas.registry import formula


def _window(kernel: Any, dimensions: int) -> int:
    if isinstance(kernel, int):
        return int(kernel**dimensions)
    return int(kernel[0] ** dimensions if len(kernel) == 1 else math.prod(kernel))


def pooled(dimensions: int, operand: Operand, kernel: Any, outputs: Any) -> Work:
    """Window size per output element."""
    result = next(tensors(outputs))
    return vector(elements(result) * _window(kernel, dimensions), operand)


def _register(dimensions: int, *names: str) -> None:
    @formula(*names)
    def pool(operand: Operand, kernel_size: Any, *_args: Any, outputs: Any, **_named: Any) -> Work:
        return pooled(dimensions, operand, kernel_size, outputs)


_register(
    1, "aten::avg_pool1d", "aten::max_pool1d", "aten::quantized_max_pool1d", "quantized::max_pool1d"
)
for _size in (2, 3):
    _register(
        _size,
        f"aten::avg_pool{_size}d",
        f"aten::max_pool{_size}d_with_indices",
        f"aten::max_pool{_size}d",
        f"aten::mkldnn_max_pool{_size}d",
        f"aten::quantized_max_pool{_size}d",
        f"aten::fractional_max_pool{_size}d",
    )
_register(2, "quantized::max_pool2d")


def _register_average_backward(dimensions: int) -> None:
    @formula(f"aten::avg_pool{dimensions}d_backward")
    def backward(gradient: Operand, operand: Operand, kernel_size: Any, *_args: Any) -> Work:
        """Window size per gradient element."""
        return pooled(dimensions, gradient, kernel_size, gradient)


_register_average_backward(2)
_register_average_backward(3)
# One addition per gradient element, at the place of its maximum.
per_element(
    __name__,
    1,
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


def _windows(size: int, outputs: int) -> int:
    """Return the sum of window lengths when `size` is divided among `outputs` overlapping windows.

    Window i runs from floor(i·size/outputs) to ceil((i + 1)·size/outputs).
    """
    return sum(-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs))


def adaptive(dimensions: int, operand: Operand, result: Operand) -> Work:
    """The sizes of all windows, which differ where the output does not divide the input."""
    inside, outside = operand.shape[-dimensions:], result.shape[-dimensions:]
    per_channel = math.prod(map(_windows, inside, outside))
    return vector(math.prod(result.shape[:-dimensions]) * per_channel, operand)


def _register_adaptive(dimensions: int, *names: str, backward: tuple[str, ...] = ()) -> None:
    @formula(*names)
    def pool(operand: Operand, output_size: Any, *, outputs: Any) -> Work:
        return adaptive(dimensions, operand, next(tensors(outputs)))

    @formula(*backward)
    def gradients(gradient: Operand, operand: Operand) -> Work:
        """As forward: the gradient is added to every element of its window."""
        return adaptive(dimensions, operand, gradient)


_register_adaptive(1, "aten::adaptive_avg_pool1d", "aten::adaptive_max_pool1d")
_register_adaptive(
    2,
    *("aten::_adaptive_avg_pool2d", "aten::adaptive_avg_pool2d", "aten::adaptive_max_pool2d"),
    "aten::mkldnn_adaptive_avg_pool2d",
    backward=("aten::_adaptive_avg_pool2d_backward", "aten::mkldnn_adaptive_avg_pool2d_backward"),
)
_register_adaptive(
    3,
    *("aten::_adaptive_avg_pool3d", "aten::adaptive_avg_pool3d", "aten::adaptive_max_pool3d"),
    backward=("aten::_adaptive_avg_pool3d_backward", "aten::adaptive_avg_pool3d_backward"),
)
