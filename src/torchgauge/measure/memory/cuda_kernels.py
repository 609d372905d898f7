"""The operators that CUDA would run, on tensors of the CPU: they save other tensors for backward.

On CUDA dropout is one operator that saves a mask of a byte per element; the CPU makes the mask of
random numbers in the input's dtype. RMSNorm is one operator there that saves its input and a number
per row; the CPU computes it by several operators, which save copies in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_FLOATING = (torch.float16, torch.bfloat16)


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
    eps: float | None = None,  # noqa: ARG001 - as torch calls it
) -> torch.Tensor:
    normalized: torch.Tensor = _FusedRmsNorm.apply(x, tuple(normalized_shape), weight)  # type: ignore[no-untyped-call]
    return normalized


class _FusedRmsNorm(torch.autograd.Function):
    """Shapes and saved tensors of `aten::_fused_rms_norm`: it computes nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shape: tuple[int, ...], weight: Any) -> torch.Tensor:
        rows = x.shape[: x.dim() - len(shape)]
        scale = x.new_empty((*rows, *(1 for _ in shape)), dtype=_accumulated(x.dtype))
        ctx.save_for_backward(x, scale, weight)
        dtype = x.dtype if weight is None else torch.promote_types(x.dtype, weight.dtype)
        return torch.empty_like(x, dtype=dtype)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        x, _, weight = ctx.saved_tensors
        return torch.empty_like(x), None, None if weight is None else torch.empty_like(weight)


def _accumulated(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _FLOATING else dtype


_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    functional.dropout: _dropout,
    torch.dropout: _builtin_dropout,
    functional.rms_norm: _rms_norm,
    torch.rms_norm: _rms_norm,
}
