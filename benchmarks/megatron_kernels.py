"""What layers of Megatron-LM run: products of shards, and kernels that keep what its own keep.

Values are not right: jobs are counted, on tensors that have none.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.autograd import Function
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of a model, and of how Megatron-LM runs it; defaults are those of its own.

    `micro_batches` may be fewer than in the job where they are as many as stages: no more are
    alive. `recompute` is "none", "core" (attention without its products) or "full".
    `loss_in_place` is newer than 2023; without `fused` neither Apex nor Transformer Engine is
    installed.
    """

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    length: int
    micro_batch: int
    micro_batches: int
    precision: str = "bf16"
    gradients: str = "fp32"
    gated: bool = False
    rms: bool = False
    rotary: bool = False
    query_norm: bool = False
    flash: bool = False
    fused: bool = True
    recompute: str = "none"
    sequence_parallel: bool = False
    distributed_optimizer: bool = False
    loss_in_place: bool = True
    dropout: float = 0.1

    @property
    def dtype(self) -> torch.dtype:
        """That of parameters and activations."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float16

    def norm(self, width: int) -> nn.Module:
        """Return a normalisation of features."""
        return (nn.RMSNorm if self.rms else nn.LayerNorm)(width, eps=1e-5)


class Region:
    """The ranks that share a layer, and the buffers that all layers share."""

    def __init__(self, group: Any, settings: Settings) -> None:
        self.group = group
        self.ranks = 1 if group is None else dist.get_world_size(group)
        self.sequence = settings.sequence_parallel and self.ranks > 1
        self._buffer: Tensor | None = None
        self._mask: Tensor | None = None

    def scratch(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Return the buffer that is kept for all layers, as large as the largest use of it."""
        size = torch.Size(shape).numel()
        if self._buffer is None or self._buffer.numel() < size:
            self._buffer = torch.empty(size, dtype=dtype)
        return self._buffer[:size].view(shape)

    def mask(self, length: int) -> Tensor:
        """Return the causal mask, which is kept."""
        if self._mask is None:
            self._mask = torch.ones(length, length, dtype=torch.bool).triu_(1)
        return self._mask

    def gathered(self, x: Tensor, *, shared: bool = True) -> Tensor:
        """Return all of a sequence (L, N, width), in the shared buffer or in a new tensor."""
        if not self.sequence:
            return x
        shape = (x.shape[0] * self.ranks, *x.shape[1:])
        whole = self.scratch(*shape, dtype=x.dtype) if shared else x.new_empty(shape)
        dist.all_gather_into_tensor(whole, x.contiguous(), group=self.group)
        return whole

    def reduced(self, x: Tensor, *, operation: Any = dist.ReduceOp.SUM) -> Tensor:
        """Return the sum over ranks: in place, or this rank's part of a sequence."""
        if self.ranks == 1:
            return x
        if not self.sequence or x.dim() < 3:
            dist.all_reduce(x, operation, group=self.group)
            return x
        part = x.new_empty((x.shape[0] // self.ranks, *x.shape[1:]))
        dist.reduce_scatter_tensor(part, x.contiguous(), group=self.group)
        return part


class Product(Function):
    """A product whose weight's gradient goes into its buffer at once, if that kernel is there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, region: Region, settings: Any) -> Tensor:
        """Multiply a sequence, gathered first where `region` is given, by a weight."""
        ctx.save_for_backward(x, weight)
        ctx.region, ctx.settings = region, settings
        return functional.linear(x if region is None else region.gathered(x), weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        """Return the gradients of the input and the weight."""
        x, weight = ctx.saved_tensors
        own = gradient.matmul(weight)
        whole = x
        if ctx.region is not None:
            whole = ctx.region.gathered(x)
            own = ctx.region.reduced(own)
        of_weight = gradient.flatten(0, 1).t().mm(whole.flatten(0, 1))
        if ctx.settings.fused:
            weight.main_grad.add_(of_weight)
            of_weight = None
        return own, of_weight, None, None


class Reduced(Function):
    """The sum over ranks of what each computed of a row-parallel product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, region: Region) -> Tensor:
        """Reduce, in place where all ranks get the whole."""
        ctx.region = region
        if not region.sequence:
            ctx.mark_dirty(x)
        return region.reduced(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        """Gather the gradients of the sequence's parts."""
        return ctx.region.gathered(gradient, shared=False), None


class Activation(Function):
    """GELU, or SwiGLU of two halves, as one kernel that keeps its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _bias: Tensor, gated: bool) -> Tensor:
        """Map hidden features."""
        ctx.save_for_backward(x)
        return functional.gelu(x[..., : x.shape[-1] // 2] if gated else x)

    @staticmethod
    def backward(ctx: Any, _gradient: Tensor) -> tuple[Any, ...]:
        """Return the gradients of the input and the bias."""
        (x,) = ctx.saved_tensors
        own = torch.empty_like(x)
        return own, own.flatten(0, -2).sum(0), None


class DropoutAdd(Function):
    """Bias, dropout and shortcut as one kernel that keeps a mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _bias: Tensor, shortcut: Tensor, rate: float) -> Tensor:
        """Add what dropout leaves to the shortcut."""
        dropped, mask = torch.native_dropout(x, rate, True)
        ctx.save_for_backward(mask)
        ctx.rate = rate
        return dropped.add_(shortcut)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        """Return the gradients of all three."""
        (mask,) = ctx.saved_tensors
        own = torch.ops.aten.native_dropout_backward(gradient, mask, 1 / (1 - ctx.rate))
        return own, own.flatten(0, -2).sum(0), gradient, None


class CausalSoftmax(Function):
    """The kernel of masked softmax in 16 bits, whose backward pass is in place."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        """Normalise each row."""
        probabilities = torch.empty_like(scores)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Return the scores' gradient, in place of what came."""
        return gradient.mul_(ctx.saved_tensors[0])


class Rotation(Function):
    """Rotary positions as one kernel, which keeps angles alone."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        """Rotate."""
        return torch.empty(x.shape, dtype=x.dtype)

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> Tensor:
        """Rotate back."""
        return torch.empty(gradient.shape, dtype=gradient.dtype)


class Loss(Function):
    """Cross entropy over classes that ranks share, which keeps a softmax in float32."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, region: Region, in_place: bool) -> Tensor:
        """Return the loss of each token."""
        wide = logits.float()
        largest = region.reduced(wide.max(-1)[0], operation=dist.ReduceOp.MAX)[..., None]
        wide = wide.sub_(largest) if in_place else wide - largest
        own = region.reduced(wide.gather(-1, target[..., None])[..., 0])
        total = region.reduced(wide.exp_().sum(-1))
        ctx.save_for_backward(wide.div_(total[..., None]))
        return total.log() - own

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        """Return the logits' gradient, in place of the softmax."""
        return ctx.saved_tensors[0].mul_(gradient[..., None]), None, None, None
