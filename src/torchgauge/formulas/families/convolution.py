"""Convolutions, counted dense: padding's zeros take part in the products like any element.

Each output element takes C_in / groups · kernel multiply-accumulates; with a transposed
convolution each input element C_out / groups · kernel. Both gradients take as many as the forward,
grouped or not. What a convolution is fused with (a bias, a sum, an activation) is not counted; the
bias's gradient is a reduction, and is.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.operand import FREE, Operand, Work, elements_of, product, vector
from torchgauge.formulas.registry import formula


def _macs(output: Operand, weight: Operand) -> int:
    """Return elements · C / groups · kernel; a weight packed by mkldnn has the groups before it."""
    packed = "mkldnn" in str(getattr(weight, "layout", ""))
    leading = 2 if packed and len(weight.shape) > len(output.shape) else 1
    return elements_of(output) * int(math.prod(weight.shape[leading:]))


@formula("aten::convolution", "aten::_convolution", "aten::convolution_overrideable")
def convolution(
    operand: Operand, weight: Operand, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, *args: Any, outputs: Any,
) -> Work:  # fmt: skip
    """[n, co, *out] = convolution([n, ci, *in], [co, ci / groups, *kernel])."""
    return product(_macs(operand if transposed else outputs, weight), operand)


@formula(
    "aten::mkldnn_convolution", "aten::cudnn_convolution", "aten::cudnn_convolution_relu",
    "aten::cudnn_convolution_add_relu", "aten::miopen_convolution",
    "aten::miopen_convolution_relu", "aten::miopen_convolution_add_relu",
    "aten::miopen_depthwise_convolution", "aten::_slow_conv2d_forward",
    "aten::slow_conv3d_forward", "aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d",
    "aten::_conv_depthwise2d", "aten::conv_depthwise3d", "aten::_nnpack_spatial_convolution",
    "aten::_mps_convolution", "aten::thnn_conv2d", "aten::slow_conv3d",
)  # fmt: skip
def forward(operand: Operand, weight: Operand, *args: Any, outputs: Any, **kwargs: Any) -> Work:
    """The same for operators that are never transposed."""
    return product(_macs(outputs, weight), operand)


@formula("mkldnn::_convolution_pointwise")
def pointwise(operand: Operand, second: Operand, *args: Any, outputs: Any) -> Work:
    """The same; the binary form has the operand to add between input and weight."""
    third = args[0] if args else None
    weight = third if third is not None and len(third.shape) > 1 else second
    return product(_macs(outputs, weight), operand)


@formula("mkldnn::_convolution_pointwise_")
def pointwise_added(other: Operand, operand: Operand, weight: Operand, *args: Any) -> Work:
    """The same, added to `other` in place."""
    return product(_macs(other, weight), operand)


@formula(
    "aten::cudnn_convolution_transpose", "aten::miopen_convolution_transpose",
    "aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d",
    "aten::_mps_convolution_transpose", "mkldnn::_convolution_transpose_pointwise",
)  # fmt: skip
def transposed(operand: Operand, weight: Operand, *args: Any, **kwargs: Any) -> Work:
    """[n, co, *out] = transposed([n, ci, *in], [ci, co / groups, *kernel])."""
    return product(_macs(operand, weight), operand)


@formula("aten::convolution_backward")
def convolution_backward(
    gradient: Operand, operand: Operand, weight: Operand, bias_sizes: Any, stride: Any,
    padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int,
    output_mask: Any,
) -> Work:  # fmt: skip
    """The forward's products for each of the two gradients that the mask asks for."""
    return _backward(gradient, operand, weight, transposed=transposed, mask=output_mask)


@formula("aten::convolution_backward_overrideable")
def backward_overrideable(
    gradient: Operand, operand: Operand, weight: Operand, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Any,
) -> Work:  # fmt: skip
    """The same without the bias's sizes."""
    return _backward(gradient, operand, weight, transposed=transposed, mask=output_mask)


@formula("aten::_slow_conv2d_backward")
def slow_backward(
    gradient: Operand, operand: Operand, weight: Operand, kernel_size: Any, stride: Any,
    padding: Any, output_mask: Any = (True, True, True), **kwargs: Any,
) -> Work:  # fmt: skip
    """The same for a convolution in two dimensions."""
    return _backward(gradient, operand, weight, transposed=False, mask=output_mask)


@formula("aten::mps_convolution_backward")
def mps_backward(
    operand: Operand, gradient: Operand, weight: Operand, padding: Any, stride: Any, dilation: Any,
    groups: int, output_mask: Any,
) -> Work:  # fmt: skip
    """The same, its operands in another order."""
    return _backward(gradient, operand, weight, transposed=False, mask=output_mask)


@formula("aten::mps_convolution_transpose_backward")
def mps_transposed_backward(
    operand: Operand, gradient: Operand, weight: Operand, padding: Any, output_padding: Any,
    stride: Any, dilation: Any, groups: int, output_mask: Any,
) -> Work:  # fmt: skip
    """The same, transposed and without a bias."""
    return _backward(gradient, operand, weight, transposed=True, mask=(*output_mask, False))


def _backward(
    gradient: Operand, operand: Operand, weight: Operand, *, transposed: bool, mask: Any
) -> Work:
    once = _macs(operand if transposed else gradient, weight)
    work = product(once * (bool(mask[0]) + bool(mask[1])), operand)
    bias = vector(elements_of(gradient), gradient) if mask[2] else FREE
    return work._replace(vector=bias.vector)


@formula("aten::conv_tbc")
def conv_tbc(operand: Operand, weight: Operand, bias: Any, pad: int = 0, *, outputs: Any) -> Work:
    """[t', n, co] = conv_tbc([t, n, ci], [kernel, ci, co])."""
    return product(elements_of(outputs) * weight.shape[0] * weight.shape[1], operand)
