"""Outputs of recorded operators with the types that they certainly have: what each call wrote.

`shapes` infers sizes, and of a type only whether it is real; bytes need the type itself. A rule
raises MissingOperandError where the trace leaves it open: a default type, a list without types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torchgauge.formulas.free import aten
from torchgauge.formulas.kinds import POINTWISE
from torchgauge.formulas.operand import (
    Described,
    MissingOperandError,
    MissingValue,
    is_complex,
    is_integer,
)
from torchgauge.formulas.promotion import BOOL, FLOAT32, INT64, ElementType, common, in_type, typed
from torchgauge.formulas.shapes import broadcast, like, outputs

Rule = Callable[..., Any]


# How many tensors an elementwise operator reads, one unless it is here: what follows is `out=`.
_BINARY = aten(
    """
    __ilshift__ __lshift__ __rshift__ add atan2 bitwise_and bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor clamp_max clamp_min copysign div eq fmax fmin fmod gcd ge gt
    heaviside hypot igamma igammac lcm ldexp le logaddexp logaddexp2 logical_and logical_or
    logical_xor logit_backward lt maximum minimum mul ne nextafter pow remainder rsub
    polygamma sigmoid_backward special_xlog1py special_zeta sub tanh_backward xlogy
    special_hermite_polynomial_h special_hermite_polynomial_he special_laguerre_polynomial_l
    special_legendre_polynomial_p
    """
) | {
    f"aten::special_{prefix}chebyshev_polynomial_{kind}"
    for prefix in ("", "shifted_")
    for kind in "tuvw"
}
_TERNARY = aten("addcdiv addcmul clamp lerp")
_TO_BOOL = aten(
    "eq ge gt isinf isnan isneginf isposinf le logical_and logical_not logical_or logical_xor lt "
    "ne signbit"
)
_POOLS = aten("_adaptive_avg_pool2d adaptive_avg_pool2d avg_pool1d avg_pool2d avg_pool3d glu")
_POOLS_WITH_PLACES = aten("max_pool2d_with_indices max_pool3d_with_indices")
_OF_OTHER_TYPE = aten("frexp ldexp polygamma")
# Others that give what their inputs broadcast to, in their type.
_ELEMENTWISE = aten(
    "elu_backward gelu_backward hardshrink_backward hardsigmoid_backward hardswish "
    "hardswish_backward hardtanh_backward leaky_relu_backward mish_backward silu_backward "
    "native_dropout_backward softplus_backward softshrink_backward threshold_backward"
)


def written(name: str, operands: tuple[Any, ...]) -> Any:
    """Return what a call of "aten::add", without overload, wrote: a tensor, or several.

    Raises MissingOperandError without a rule, and where sizes or type are not certain.
    """
    base = name if name.startswith("aten::__") else name.removesuffix("_")
    if name != base and base in POINTWISE | _ELEMENTWISE:
        return _tensor(operands)
    if base in POINTWISE:
        return _pointwise(base, operands)
    if base in _ELEMENTWISE:
        return common(operands)
    rule = _RULES.get(base)
    if rule is None:
        raise MissingOperandError("the sizes of its output")
    try:
        return rule(*operands)
    except (TypeError, IndexError) as error:
        raise MissingOperandError("all of its arguments") from error


def elementwise_inputs(base: str) -> int:
    """Return how many tensors an elementwise operator reads at most."""
    return 3 if base in _TERNARY else 2 if base in _BINARY else 1


def _pointwise(base: str, operands: tuple[Any, ...]) -> Described:
    tensors = [operand for operand in operands if isinstance(operand, Described)]
    if len(tensors) > elementwise_inputs(base) or base in _OF_OTHER_TYPE:
        raise MissingOperandError("the type of its output")
    if base in _TO_BOOL:
        return typed(broadcast([tensor.shape for tensor in tensors]), BOOL)
    result = common(operands)
    real_of_complex = is_complex(result) and base in ("aten::abs", "aten::angle")
    if real_of_complex or (is_integer(result) and _may_turn_real(base, operands)):
        raise MissingOperandError("the type of its output")
    return result


def _may_turn_real(base: str, operands: tuple[Any, ...]) -> bool:
    """Whether whole numbers may become the default type: by the operator, or by a number."""
    whole_number_operators = aten(
        "__ilshift__ __lshift__ __rshift__ abs add bitwise_and bitwise_left_shift bitwise_not "
        "bitwise_or bitwise_right_shift bitwise_xor clamp clamp_max clamp_min fmod gcd lcm maximum "
        "minimum mul neg relu remainder rsub sgn sign sub"
    )
    numbers = [operand for operand in operands if not isinstance(operand, Described)]
    return base not in whole_number_operators or any(
        isinstance(number, float | complex | MissingValue) for number in numbers
    )


def _tensor(operands: Sequence[Any], index: int = 0) -> Described:
    operand = operands[index] if index < len(operands) else None
    if not isinstance(operand, Described):
        raise MissingOperandError("the sizes of an operand")
    return operand


def _reduced(operand: Described, dims: Any) -> tuple[int, ...]:
    """Return the sizes that are left; a kept dimension of size 1 holds no more elements."""
    if isinstance(dims, MissingValue):
        raise MissingOperandError("the values of numbers")
    if dims is None or dims == []:
        return ()
    count = len(operand.shape)
    reduced_dims = (
        {dim % count for dim in ([dims] if isinstance(dims, int) else dims)} if count else set()
    )
    return tuple(size for index, size in enumerate(operand.shape) if index not in reduced_dims)


def _sum(operand: Described, *options: Any) -> Described:
    """sum(self, dtype) or sum(self, dims, keepdim, dtype)."""
    if len(options) not in (1, 3):
        raise MissingOperandError("the type of its output")
    dims = options[0] if len(options) == 3 else None
    result = in_type(options[-1], like(operand, _reduced(operand, dims)))
    return typed(result.shape, INT64) if options[-1] is None and is_integer(result) else result


def _keeps_type(keyword_dims: int) -> Rule:
    """A reduction that keeps the type of real numbers; `dims` is at this place, if at all."""

    def rule(operand: Described, *options: Any) -> Described:
        if is_complex(operand):
            raise MissingOperandError("the type of its output")
        dims = options[keyword_dims] if len(options) > keyword_dims + 1 else None
        return like(operand, _reduced(operand, dims))

    return rule


def _to(kind: ElementType) -> Rule:
    def rule(operand: Described, dims: Any = None, *_unused: Any) -> Described:
        return typed(_reduced(operand, dims), kind)

    return rule


def _extremes(operand: Described, *options: Any) -> Any:
    """max(self), or max(self, dim, keepdim) with the places of what it gives."""
    if not options:
        return like(operand, ())
    if len(options) != 2:
        raise MissingOperandError("the type of its output")
    shape = _reduced(operand, options[0])
    return like(operand, shape), typed(shape, INT64)


def _softmax(operand: Described, _dim: Any, to_float: Any = False) -> Described:
    return typed(operand.shape, FLOAT32) if to_float else like(operand, operand.shape)


def _statistics(operand: Described) -> ElementType:
    """Return the type that means and deviations are kept in: half types accumulate in float32."""
    return (operand.dtype, operand.itemsize) if operand.itemsize >= 4 else FLOAT32


def _layer_norm(operand: Described, sizes: Any, weight: Any = None, *_unused: Any) -> Any:
    normalised = weight.shape if isinstance(weight, Described) else sizes
    if not isinstance(normalised, list | tuple):
        raise MissingOperandError("the values of numbers")
    rows = operand.shape[: len(operand.shape) - len(normalised)]
    return (like(operand, operand.shape), *[typed(rows, _statistics(operand))] * 2)


def _group_norm(operand: Described, _w: Any, _b: Any, batch: int, _c: Any, _s: Any, groups: int,
                *_unused: Any) -> Any:  # fmt: skip
    per_group = typed((batch, groups), _statistics(operand))
    return like(operand, operand.shape), per_group, per_group


def _batch_norm(operand: Described, _w: Any, _b: Any, _mean: Any, _variance: Any, training: Any,
                *_unused: Any) -> Any:  # fmt: skip
    channels = typed((operand.shape[1] if training else 0,), _statistics(operand))
    return like(operand, operand.shape), channels, channels


def _layer_norm_backward(_grad: Any, operand: Described, _sizes: Any, _mean: Any, _rstd: Any,
                         weight: Any, bias: Any, *mask: Any) -> Any:  # fmt: skip
    return _masked((operand, weight, bias), mask)


def _batch_norm_backward(_grad: Any, operand: Described, weight: Any, *options: Any) -> Any:
    per_channel = weight if isinstance(weight, Described) else None
    return _masked((operand, per_channel, per_channel), options[-1:])


def _cudnn_batch_norm_backward(operand: Described, _grad: Any, weight: Any, *_unused: Any) -> Any:
    return operand, weight, weight


def _group_norm_backward(_grad: Any, operand: Described, _mean: Any, _rstd: Any, weight: Any,
                         *options: Any) -> Any:  # fmt: skip
    return _masked((operand, weight, weight), options[-1:])


def _convolution_backward(_grad: Any, operand: Described, weight: Described, *options: Any) -> Any:
    return _masked((operand, weight, like(weight, (weight.shape[0],))), options[-1:])


def _masked(gradients: Sequence[Any], mask: Sequence[Any]) -> tuple[Any, ...]:
    """Return those that the last argument, `output_mask`, asks for."""
    if not mask or not isinstance(mask[0], list) or len(mask[0]) != len(gradients):
        raise MissingOperandError("which gradients it makes")
    return tuple(
        like(gradient, gradient.shape) if isinstance(gradient, Described) else None
        for gradient, is_asked in zip(gradients, mask[0], strict=True)
        if is_asked
    )


def _flash(query: Described, _key: Any, value: Described, *_unused: Any) -> Any:
    """The output, and the logarithm of each row's sum for the backward pass."""
    rows = typed(query.shape[:-1], FLOAT32 if query.itemsize < 8 else (query.dtype, 8))
    return like(query, (*query.shape[:-1], value.shape[-1])), rows


def _flash_backward(_grad: Any, query: Described, key: Described, value: Described,
                    *_unused: Any) -> Any:  # fmt: skip
    return tuple(like(operand, operand.shape) for operand in (query, key, value))


def _outputs(name: str, *operands: Any) -> Any:
    return outputs(name, operands)


def _pooled(name: str, *operands: Any) -> Any:
    result = outputs(name, operands)
    return result, typed(result.shape, INT64)


def _like_input(operand: Described, *_unused: Any) -> Described:
    return like(operand, operand.shape)


def _second(_grad: Any, operand: Described, *_unused: Any) -> Described:
    return like(operand, operand.shape)


def _converted(operand: Described, dtype: Any, *_unused: Any) -> Described:
    return in_type(dtype, operand)


def _cumulated(operand: Described, _dim: Any, dtype: Any = None, *_unused: Any) -> Described:
    return typed(operand.shape, INT64) if dtype is None and is_integer(operand) else in_type(
        dtype, operand
    )  # fmt: skip


def _chosen_values(condition: Described, *values: Any) -> Described:
    result = common(values)
    return like(result, broadcast([condition.shape, result.shape]))


def _dropout(operand: Described, *_unused: Any) -> Any:
    return like(operand, operand.shape), typed(operand.shape, BOOL)


def _embedding(weight: Described, indices: Described, *_unused: Any) -> Described:
    return like(weight, (*indices.shape, weight.shape[-1]))


def _embedding_backward(grad: Described, _indices: Any, rows: int, *_unused: Any) -> Described:
    return like(grad, (rows, grad.shape[-1]))


def _gathered(operand: Described, _dim: Any, index: Described, *_unused: Any) -> Described:
    return like(operand, index.shape)


def _selected(operand: Described, dim: int, index: Described, *_unused: Any) -> Described:
    sizes = list(operand.shape)
    sizes[dim] = math.prod(index.shape)
    return like(operand, sizes)


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(aten(names), rule)


_RULES: dict[str, Rule] = {
    **_named("sum nansum mean prod", _sum),
    **_named("amax amin", _keeps_type(0)),
    **_named("norm linalg_vector_norm", _keeps_type(1)),
    **_named("std var", _keeps_type(0)),
    **_named("all any", _to(BOOL)),
    **_named("argmax argmin count_nonzero", _to(INT64)),
    **_named("max min", _extremes),
    **_named("cumsum cumprod softmax log_softmax", _cumulated),
    **_named("_softmax _log_softmax", _softmax),
    **_named("_softmax_backward_data _log_softmax_backward_data clone contiguous", _like_input),
    **_named("_to_copy", _converted),
    **_named("max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
             "_adaptive_avg_pool2d_backward avg_pool2d_backward", _second),
    **_named("where", _chosen_values),
    **_named("native_dropout _fused_dropout", _dropout),
    **_named("native_layer_norm", _layer_norm),
    **_named("native_group_norm", _group_norm),
    **_named("native_batch_norm cudnn_batch_norm miopen_batch_norm", _batch_norm),
    **_named("native_layer_norm_backward", _layer_norm_backward),
    **_named("native_batch_norm_backward", _batch_norm_backward),
    **_named("cudnn_batch_norm_backward miopen_batch_norm_backward", _cudnn_batch_norm_backward),
    **_named("native_group_norm_backward", _group_norm_backward),
    **_named("convolution_backward", _convolution_backward),
    **_named("_scaled_dot_product_flash_attention "
             "_scaled_dot_product_flash_attention_for_cpu", _flash),
    **_named("_scaled_dot_product_flash_attention_backward "
             "_scaled_dot_product_flash_attention_for_cpu_backward", _flash_backward),
    **_named("embedding", _embedding),
    **_named("embedding_dense_backward", _embedding_backward),
    **_named("gather", _gathered),
    **_named("index_select", _selected),
    **_named("_local_scalar_dense", lambda *_unused: None),
    **{name: partial(_outputs, name) for name in _POOLS},
    **{name: partial(_pooled, name) for name in _POOLS_WITH_PLACES},
}  # fmt: skip
