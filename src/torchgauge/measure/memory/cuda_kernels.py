"""The operators that CUDA would run, on tensors of the CPU: they save other tensors for backward.

On CUDA dropout is one operator that saves a mask of a byte per element; the CPU makes the mask of
random numbers in the input's dtype. RMSNorm is one operator there that saves its input and a number
per row; the CPU computes it by several operators, which save copies in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_HALF = (torch.float16, torch.bfloat16)


class CudaKernels(TorchFunctionMode):
    """Runs CUDA's operators in place of the CPU's, on tensors that have no values.

    Tensors with values take the operators that they would take anyway, as distributed ones do in
    RMSNorm: the gradient of its weight would need a collective.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, or what CUDA runs in its place."""
        replacement = _REPLACEMENTS.get(func)
        if replacement is not None and args and _has_no_values(args[0], replacement):
            return replacement(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _has_no_values(tensor: Any, replacement: Callable[..., Any]) -> bool:
    if replacement is not _rms_norm:
        tensor = getattr(tensor, "_local_tensor", tensor)
    return isinstance(tensor, FakeTensor) or (type(tensor) is torch.Tensor and tensor.is_meta)


def _dropout(
    x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    if inplace or not training or not 0 < p < 1 or not x.requires_grad:
        return functional.dropout(x, p, training, inplace)
    return torch.native_dropout(x, p, True)[0]


def _builtin_dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    return _dropout(x, p, train)


def _rms_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    shape = list(normalized_shape)
    normalized: torch.Tensor = _RmsNorm.apply(x, shape, weight, eps)  # type: ignore[no-untyped-call]
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
    library = torch.library.Library("torchgauge", "FRAGMENT")
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


_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    functional.dropout: _dropout,
    torch.dropout: _builtin_dropout,
    functional.rms_norm: _rms_norm,
    torch.rms_norm: _rms_norm,
}
