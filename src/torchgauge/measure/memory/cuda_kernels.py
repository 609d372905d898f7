"""The operators that CUDA would run, on tensors of the CPU: they save other tensors for backward.

On CUDA dropout is one operator that saves a mask of a byte per element; the CPU makes the mask of
random numbers in the input's dtype. RMSNorm is one operator there that saves its input and a number
per row; the CPU computes it by several operators, which save copies in float32.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from torchgauge.signals import restoring

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_HALF = (torch.float16, torch.bfloat16)
_scaled_dot_product = torch.nn.functional.scaled_dot_product_attention


@restoring
def cuda_kernels() -> Iterator[None]:
    """Run CUDA's operators in place of the CPU's, on tensors that have no values.

    Tensors with values take the operators that they would take anyway, as distributed ones do in
    RMSNorm and attention: a weight's gradient would need a collective, and rings take no dropout.
    """
    with contextlib.ExitStack() as undo:
        for owner, name, replacement in _REPLACEMENTS:
            original = getattr(owner, name)
            setattr(owner, name, functools.partial(_called, original, replacement))
            undo.callback(setattr, owner, name, original)
        yield


def _called(original: Any, replacement: Any, *args: Any, **kwargs: Any) -> Any:
    tensor = args[0] if args else kwargs.get("input")
    if replacement is _dropout:
        tensor = getattr(tensor, "_local_tensor", tensor)
    is_meta = isinstance(tensor, torch.Tensor) and tensor.is_meta and type(tensor) in _PLAIN
    if isinstance(tensor, FakeTensor) or is_meta:
        replaced = replacement(*args, **kwargs)
        if replaced is not None:
            return replaced
    return original(*args, **kwargs)


def _dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor | None:
    if not train or not 0 < p < 1:
        return None
    return torch.native_dropout(input, p, True)[0]


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor | None:
    if not 0 < dropout_p < 1:
        return None
    return _scaled_dot_product(query, key, value, attn_mask, 0.0, *args, **kwargs)


def _rms_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    shape = list(normalized_shape)
    normalized: torch.Tensor = _RmsNorm.apply(input, shape, weight, eps)  # type: ignore[no-untyped-call]
    return normalized


class _RmsNorm(torch.autograd.Function):
    """RMSNorm by an operator of shapes alone, which saves what `aten::_fused_rms_norm` saves."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shape: list[int], weight: Any, eps: Any) -> torch.Tensor:
        y, scale = _operators()[1].rms_norm(x, shape, weight, eps)
        ctx.save_for_backward(x, scale, weight)
        ctx.shape = shape
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, scale, weight = ctx.saved_tensors
        gradient, own = _operators()[1].rms_norm_backward(
            gradients[0], x, ctx.shape, scale, weight, [True, weight is not None]
        )
        return gradient, None, None if weight is None else own, None


@functools.cache
def _operators() -> Any:
    """Define the operators `torchgauge::rms_norm` and its backward, which take no values."""
    library: Any = torch.library.Library("torchgauge", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(
        "rms_norm(Tensor x, int[] shape, Tensor? weight, float? eps) -> (Tensor, Tensor)"
    )
    library.define(
        "rms_norm_backward(Tensor gradient, Tensor x, int[] shape, Tensor scale, Tensor? weight, "
        "bool[2] mask) -> (Tensor, Tensor)"
    )
    library.impl("rms_norm", _shapes, "Meta")
    library.impl("rms_norm_backward", _backward_shapes, "Meta")
    return library, torch.ops.torchgauge


def _shapes(
    x: torch.Tensor, shape: list[int], weight: Any, _eps: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x.shape[: x.dim() - len(shape)]
    dtype = torch.float32 if x.dtype in _HALF else x.dtype
    scale = x.new_empty((*rows, *(1 for _ in shape)), dtype=dtype)
    output = x.dtype if weight is None else torch.promote_types(x.dtype, weight.dtype)
    return torch.empty_like(x, dtype=output), scale


def _backward_shapes(
    _gradient: Any, x: torch.Tensor, _shape: Any, _scale: Any, weight: Any, _mask: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), x.new_empty(0) if weight is None else torch.empty_like(weight)


# Python's functions of torch.nn.functional call these.
_REPLACEMENTS: tuple[tuple[Any, str, Any], ...] = (
    (torch._VF, "dropout", _dropout),  # noqa: SLF001
    (torch, "dropout", _dropout),
    (torch, "rms_norm", _rms_norm),
    (torch.nn.functional, "scaled_dot_product_attention", _attention),
)
