"""Attention by the kernel that a GPU would run: flash, memory-efficient, or plain products.

The conditions are those of torch's `sdp_utils.cpp` for CUDA. cuDNN's kernel, which torch prefers on
some GPUs, moves what the flash kernel moves. Plain products write the scores and read them again.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch

from torchgauge.measure.work.internals import aten_operator

Kernel = Literal["flash", "efficient", "math"]

_HALF = (torch.float16, torch.bfloat16)
_LARGEST_FLASH_HEAD = 256
_BIAS_ALIGNMENT = 8  # elements of a row of the mask, in the efficient kernel
_MISALIGNED_HEAD = 8  # elements: the flash kernel gets padded heads


class Attention(NamedTuple):
    """The arguments of one call of `scaled_dot_product_attention`, by its schema's names."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def kernel_of(call: Attention, *, flash: bool = True) -> Kernel:
    """Return the kernel that CUDA takes; `flash` is whether the device has flash kernels.

    What no fused kernel takes, wrong shapes among it, is for plain products.
    """
    query, key, value = call.query, call.key, call.value
    tensors = (query, key, value)
    if not (
        all(tensor.dim() == 4 and tensor.dtype == query.dtype for tensor in tensors)
        and query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[1:3] == value.shape[1:3]
        and _heads_fit(query.shape[1], key.shape[1], grouped=call.enable_gqa)
        and query.shape[-1] == key.shape[-1]
        and not (call.is_causal and call.attn_mask is not None)
        and all(tensor.stride(-1) == 1 or tensor.shape[-1] == 1 for tensor in tensors)
        and math.prod(query.shape) * math.prod(key.shape) * value.shape[-1]
    ):
        return "math"
    head = query.shape[-1]
    if (
        flash
        and _enabled("flash")
        and query.dtype in _HALF
        and call.attn_mask is None
        and value.shape[-1] == head <= _LARGEST_FLASH_HEAD
        and not (call.is_causal and query.shape[-2] != key.shape[-2])
    ):
        return "flash"
    alignment = 8 if query.dtype in _HALF else 4
    if (
        _enabled("mem_efficient")
        and query.dtype in (*_HALF, torch.float32)
        and not head % alignment
        and not value.shape[-1] % alignment
    ):
        return "efficient"
    return "math"


def fused(call: Attention, kernel: Kernel) -> torch.Tensor:
    """Run the operators that CUDA runs around a fused kernel, and the kernel's own."""
    if kernel == "flash":
        return _flash(call)
    needs_gradient = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (call.query, call.key, call.value)
    )
    arguments = *call[:3], _bias(call), needs_gradient, call.dropout_p, call.is_causal
    name = "_scaled_dot_product_efficient_attention"
    if call.key.shape[1] != call.query.shape[1]:
        # Its gradients have the keys' own heads, which of the other operator they do not on meta.
        name = "_scaled_dot_product_cudnn_attention"
    return aten_operator(name)(*arguments, scale=call.scale)[0]  # type: ignore[no-any-return]


def _enabled(kernel: str) -> bool:
    """Whether the code around has left a kernel on (`torch.nn.attention.sdpa_kernel`)."""
    return bool(getattr(torch.backends.cuda, f"{kernel}_sdp_enabled")())


def _heads_fit(queries: int, keys: int, *, grouped: bool) -> bool:
    return queries == keys or (keys > 0 and queries % keys == 0 and (grouped or keys == 1))


def _flash(call: Attention) -> torch.Tensor:
    head = call.query.shape[-1]
    padding = -head % _MISALIGNED_HEAD
    heads = [call.query, call.key, call.value]
    if padding:
        heads = [torch.nn.functional.pad(tensor, (0, padding)) for tensor in heads]
    outputs = aten_operator("_scaled_dot_product_flash_attention")(
        *heads, call.dropout_p, call.is_causal, scale=call.scale
    )
    return outputs[0][..., :head] if padding else outputs[0]  # type: ignore[no-any-return]


def _bias(call: Attention) -> torch.Tensor | None:
    """Return the mask as the efficient kernel reads it: of the queries' type, in aligned rows."""
    mask = call.attn_mask
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        mask = mask.to(call.query.dtype)
    keys = mask.shape[-1]
    if padding := -keys % _BIAS_ALIGNMENT:
        mask = torch.nn.functional.pad(mask, (0, padding))[..., :keys]
    return mask.expand(*call.query.shape[:3], call.key.shape[2])
