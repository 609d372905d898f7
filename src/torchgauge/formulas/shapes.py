"""Output shapes of operators that follow from their arguments, or are unknown.

A recorded trace has no outputs. Every rule here is torch's own for the sizes; where one would need
values (a rounding mode, the numbers behind a mask), there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgauge.formulas.operand import (
    Described,
    MissingOperandError,
    MissingTensor,
    MissingValue,
    is_complex,
    is_integer,
)

Arguments = tuple[Any, ...]
Rule = Callable[..., Any]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Of whole numbers, these give truth values or whole numbers whatever they are compared with, and
# the others real numbers; so do all whose name begins with special_.
_KEEPING_INTEGER = _names(
    "eq ne lt le gt ge isinf isposinf isneginf isnan signbit nan_to_num hardtanh"
)
_FLOAT_FROM_INTEGER = _names(
    """
    acos acosh angle asin asinh atan atan2 atanh copysign cos cosh deg2rad digamma div erf erfc
    erfinv exp exp2 expm1 i0 igamma igammac ldexp lgamma log log10 log1p log2 logit mvlgamma
    polygamma rad2deg reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh xlogy
    """
)


def pointwise(name: str, operands: Arguments) -> Described:
    """Return the output of an elementwise operator, "aten::add_" without overload.

    Its type is right in being real, complex or whole, which is what decides about its work.
    """
    tensors = [operand for operand in operands if isinstance(operand, Described)]
    first_lacks = not operands or operands[0] is None or isinstance(operands[0], MissingValue)
    if (
        first_lacks
        or not tensors
        or any(isinstance(operand, MissingTensor) for operand in operands)
    ):
        raise MissingOperandError("the sizes of an operand")
    if name.endswith("_") and not name.startswith("aten::__"):
        return tensors[0]
    short = name.removeprefix("aten::")
    shape = broadcast([operand.shape for operand in tensors])
    return Described(shape, *_type(short, tensors, operands))


def _type(short: str, tensors: list[Described], operands: Arguments) -> tuple[str, tuple[()], int]:
    for operand in tensors:
        if is_complex(operand):
            return operand.dtype, (), operand.itemsize
    numbers = [operand for operand in operands if not isinstance(operand, Described)]
    if any(isinstance(operand, complex) for operand in numbers):
        return "complex64", (), 8
    for operand in tensors:
        if not is_integer(operand):
            return operand.dtype, (), operand.itemsize
    if short == "div" and len(operands) > 2:
        raise MissingOperandError("the rounding mode of a division of whole numbers")
    if short in _KEEPING_INTEGER:
        return "bool", (), 1
    if any(isinstance(operand, MissingValue) for operand in numbers):
        raise MissingOperandError("the values of numbers")
    if (
        short in _FLOAT_FROM_INTEGER
        or short.startswith("special_")
        or any(isinstance(operand, float) for operand in numbers)
    ):
        return "float32", (), 4
    return tensors[0].dtype, (), tensors[0].itemsize


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the common shape. Raises MissingOperandError for shapes that have none."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    common = []
    for sizes in zip(*padded, strict=True):
        distinct_sizes = {size for size in sizes if size != 1}
        if len(distinct_sizes) > 1:
            raise MissingOperandError("sizes that fit each other")
        common.append(distinct_sizes.pop() if distinct_sizes else 1)
    return tuple(common)


def outputs(name: str, operands: Arguments) -> Any:
    """Return the outputs of the operator, as far as its formula reads them.

    `name` is "aten::convolution", without overload. Raises MissingOperandError without a
    rule.
    """
    rule = _RULES.get(name) or _RULES.get(name.removesuffix("_"))
    if rule is None:
        raise MissingOperandError("the sizes of its output")
    return rule(name, *operands)


def like(operand: Described, shape: Sequence[int]) -> Described:
    """Return a contiguous tensor of the operand's type."""
    return Described(tuple(shape), operand.dtype, (), operand.itemsize)


def _elementwise(name: str, *operands: Any) -> Any:
    return pointwise(name, operands)


def _same_as(index: int) -> Rule:
    return lambda _name, *operands: operands[index]


def _none(_name: str, *_operands: Any) -> None:
    """No tensor comes out."""


def _glu(_name: str, operand: Described, dim: int = -1, *_unused: Any) -> Described:
    shape = list(operand.shape)
    shape[dim] //= 2
    return like(operand, shape)


def _polar(name: str, *operands: Any) -> Described:
    return Described(pointwise(name, operands).shape, "complex64", (), 8)


def _per_dimension(value: Any, dimensions: int) -> list[int]:
    """Return one number per dimension, where a list may have one for all."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * dimensions if len(values) == 1 else values


def _convolution(
    _name: str, operand: Described, weight: Described, _bias: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, *_unused: Any,
) -> Described:  # fmt: skip
    count = len(weight.shape) - 2
    batch = operand.shape[: len(operand.shape) - count - 1]
    columns = zip(
        operand.shape[-count:],
        weight.shape[2:],
        _per_dimension(stride, count),
        _per_dimension(padding, count),
        _per_dimension(dilation, count),
        _per_dimension(output_padding, count),
        strict=True,
    )
    if transposed:
        channels = weight.shape[1] * groups
        sizes = [(n - 1) * s - 2 * p + d * (k - 1) + o + 1 for n, k, s, p, d, o in columns]
    else:
        channels = weight.shape[0]
        sizes = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d, _ in columns]
    return like(operand, (*batch, channels, *sizes))


def _average_pool(count: int) -> Rule:
    def rule(
        _name: str, operand: Described, kernel: Any, stride: Any = (), padding: Any = 0,
        ceil_mode: bool = False, *_unused: Any,
    ) -> Described:  # fmt: skip
        return _pooled(count, operand, kernel, stride, padding, 1, ceil_mode)

    return rule


def _max_pool(count: int) -> Rule:
    def rule(
        _name: str, operand: Described, kernel: Any, stride: Any = (), padding: Any = 0,
        dilation: Any = 1, ceil_mode: bool = False, *_unused: Any,
    ) -> Described:  # fmt: skip
        return _pooled(count, operand, kernel, stride, padding, dilation, ceil_mode)

    return rule


def _pooled(
    count: int, operand: Described, kernel: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool,
) -> Described:  # fmt: skip
    stride = kernel if isinstance(stride, list | tuple) and not stride else stride
    sizes = []
    for n, k, s, p, d in zip(
        operand.shape[-count:],
        *(_per_dimension(parameter, count) for parameter in (kernel, stride, padding, dilation)),
        strict=True,
    ):
        size = (n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        # A window must begin inside the input or its left padding.
        sizes.append(size - (ceil_mode and (size - 1) * s >= n + p))
    return like(operand, (*operand.shape[:-count], *sizes))


def _sized(count: int, index: int = 1) -> Rule:
    """The sizes of the last dimensions are among the arguments, the second by default."""

    def rule(_name: str, operand: Described, *operands: Any) -> Described:
        size = operands[index - 1]
        if size is None:
            raise MissingOperandError("the sizes of its output")
        return like(operand, (*operand.shape[:-count], *_per_dimension(size, count)))

    return rule


def _linear(_name: str, operand: Described, weight: Described, *_unused: Any) -> Described:
    return like(operand, (*operand.shape[:-1], weight.shape[0]))


def _distances(_name: str, first: Described, second: Described, *_unused: Any) -> Described:
    batch = broadcast([first.shape[:-2], second.shape[:-2]])
    return like(first, (*batch, first.shape[-2], second.shape[-2]))


def _to_real(_name: str, operand: Described, dim: Any, _norm: Any, last: int) -> Described:
    shape = list(operand.shape)
    shape[dim[-1]] = last
    double = operand.dtype == "complex128"
    return Described(tuple(shape), "float64" if double else "float32", (), 8 if double else 4)


def _affine_grid(_name: str, theta: Described, size: Any, *_unused: Any) -> Described:
    return like(theta, (size[0], *size[2:], len(size) - 2))


def _bags(
    _name: str, weight: Described, _indices: Any, offsets: Described, *options: Any
) -> tuple[Described]:
    last = len(options) > 4 and bool(options[4])
    return (like(weight, (offsets.shape[0] - last, weight.shape[1])),)


def _conv_tbc(_name: str, operand: Described, weight: Described, _b: Any, pad: int) -> Described:
    steps, batch, _ = operand.shape
    return like(operand, (steps + 2 * pad - weight.shape[0] + 1, batch, weight.shape[2]))


def _regions(
    _name: str, operand: Described, rois: Described, _scale: Any, height: int, width: int,
    *_unused: Any,
) -> Described:  # fmt: skip
    return like(operand, (rois.shape[0], operand.shape[1], height, width))


def _aten(names: str, rule: Rule) -> dict[str, Rule]:
    return {f"aten::{name}": rule for name in names.split()}


_RULES: dict[str, Rule] = {
    **_aten(
        "_add_relu elu_backward floor_divide gelu_backward hardshrink_backward "
        "hardsigmoid_backward hardswish hardswish_backward hardtanh_backward leaky_relu_backward "
        "log_sigmoid_backward log_sigmoid_forward mish_backward native_dropout_backward "
        "silu_backward softplus_backward softshrink_backward threshold_backward linalg_cross "
        "mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward "
        "binary_cross_entropy_backward",
        _elementwise,
    ),
    **_aten(
        "native_dropout _fused_dropout rrelu_with_noise _prelu_kernel _masked_scale "
        "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
        "_fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine",
        _same_as(0),
    ),
    **_aten(
        "_prelu_kernel_backward glu_backward rrelu_with_noise_backward multi_margin_loss_backward "
        "multilabel_margin_loss_backward",
        _same_as(1),
    ),
    **_aten("equal allclose", _none),
    **_aten("glu", _glu),
    **_aten("polar", _polar),
    **_aten("convolution _convolution convolution_overrideable", _convolution),
    **_aten("avg_pool1d", _average_pool(1)),
    **_aten("avg_pool2d", _average_pool(2)),
    **_aten("avg_pool3d", _average_pool(3)),
    **_aten("max_pool1d", _max_pool(1)),
    **_aten("max_pool2d_with_indices max_pool2d mkldnn_max_pool2d", _max_pool(2)),
    **_aten("max_pool3d_with_indices max_pool3d mkldnn_max_pool3d", _max_pool(3)),
    **_aten("adaptive_avg_pool1d adaptive_max_pool1d upsample_linear1d", _sized(1)),
    **_aten(
        "_adaptive_avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d upsample_bilinear2d "
        "upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_lanczos2d_aa",
        _sized(2),
    ),
    **_aten(
        "_adaptive_avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d upsample_trilinear3d",
        _sized(3),
    ),
    **_aten("fractional_max_pool2d", _sized(2, 2)),
    **_aten("fractional_max_pool3d", _sized(3, 2)),
    **_aten("linear mkldnn_linear", _linear),
    **_aten("_cdist_forward _euclidean_dist", _distances),
    **_aten("_fft_c2r", _to_real),
    **_aten("affine_grid_generator", _affine_grid),
    **_aten("_embedding_bag _embedding_bag_forward_only", _bags),
    **_aten("conv_tbc", _conv_tbc),
    "torchvision::roi_align": _regions,
    "torchvision::roi_pool": _regions,
}
