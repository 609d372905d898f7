"""One rank of a job like Megatron-LM's, with tensor, sequence, pipeline and data parallelism.

    torchgauge count benchmarks/megatron_job.py:tiny --mesh pp=2,tp=2 --on a100

Built from what Megatron-LM documents and its papers say (arXiv 1909.08053, 2104.04473, 2205.05198):
shards of its own, c10d collectives, parameters of 16 bits with masters in float32, gradients in a
buffer, kernels that are fused there as autograd functions that keep what those keep. Each stage
runs one forward, one backward, and drops what it has sent. Random weights.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import torchgauge as tg
from megatron_kernels import (
    Activation,
    CausalSoftmax,
    DropoutAdd,
    Loss,
    Product,
    Reduced,
    Region,
    Rotation,
    Settings,
)

TINY = Settings(
    layers=4, width=64, heads=4, hidden=256, vocabulary=512, length=32,
    micro_batch=2, micro_batches=4,
)  # fmt: skip
REENTRANT = {"use_reentrant": True, "preserve_rng_state": False}


class Layer(nn.Module):
    """A transformer layer with the heads and hidden features of this rank; inputs: (L, N, W)."""

    def __init__(self, settings: Settings, region: Region) -> None:
        super().__init__()
        self.settings, self.region = settings, region
        width, ranks, hidden = settings.width, region.ranks, settings.hidden // region.ranks
        self.size = width // settings.heads
        self.attention_norm, self.forward_norm = settings.norm(width), settings.norm(width)
        if settings.query_norm:
            self.query_norm, self.key_norm = settings.norm(self.size), settings.norm(self.size)
        self.heads = nn.Linear(width, 3 * width // ranks)
        self.out = nn.Linear(width // ranks, width)
        self.up = nn.Linear(width, hidden * (2 if settings.gated else 1))
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map a sequence, or this rank's part of it, to itself."""
        rate = self.settings.dropout
        mixed = self.row(self.attention(self.attention_norm(x)), self.out)
        x = DropoutAdd.apply(mixed, self.out.bias, x, rate)
        hidden = self.column(self.forward_norm(x), self.up)
        hidden = Activation.apply(hidden, self.up.bias, self.settings.gated)
        return DropoutAdd.apply(self.row(hidden, self.down), self.down.bias, x, rate)

    def column(self, x: Tensor, linear: nn.Linear) -> Tensor:
        """Compute this rank's features of a whole sequence; the caller adds the bias."""
        return Product.apply(x, linear.weight, self.region, self.settings)

    def row(self, x: Tensor, linear: nn.Linear) -> Tensor:
        """Sum over ranks what each has computed of its features."""
        product = Product.apply(x, linear.weight, None, self.settings)
        return product if self.region.ranks == 1 else Reduced.apply(product, self.region)

    def attention(self, x: Tensor) -> Tensor:
        """Return the heads of this rank, side by side."""
        settings = self.settings
        mixed = self.column(x, self.heads) + self.heads.bias
        query, key, value = mixed.unflatten(-1, (-1, 3, self.size)).unbind(-2)
        if settings.query_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        if settings.rotary:
            query, key = Rotation.apply(query), Rotation.apply(key)
        core = self.flash if settings.flash else self.unfused
        if settings.recompute == "core":
            return checkpoint(core, query, key, value, **REENTRANT)
        return core(query, key, value)

    def flash(self, *heads: Tensor) -> Tensor:
        """Mix by one kernel, whose dropout keeps nothing more."""
        query, key, value = (each.permute(1, 2, 0, 3) for each in heads)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.permute(2, 0, 1, 3).flatten(2)

    def unfused(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Mix by products, with scores in the buffer that layers share."""
        length, batch, heads, size = query.shape
        query, key, value = (each.flatten(1, 2).transpose(0, 1) for each in (query, key, value))
        scratch = self.region.scratch(batch * heads, length, length, dtype=query.dtype)
        scores = torch.baddbmm(scratch, query, key.transpose(1, 2), beta=0, alpha=size**-0.5)
        shares = CausalSoftmax.apply(scores) if self.settings.fused else self.softmax(scores)
        shares = functional.dropout(shares, self.settings.dropout)
        mixed = shares.bmm(value).view(batch, heads, length, size)
        return mixed.permute(2, 0, 1, 3).contiguous().view(length, batch, heads * size)

    def softmax(self, scores: Tensor) -> Tensor:
        """Normalise by torch's operators, in float32."""
        wide = scores.float().masked_fill_(self.region.mask(scores.shape[-1]), -1e4)
        return wide.softmax(-1).to(scores.dtype)


class Stage(nn.Module):
    """The layers of one stage, with the embedding in the first and the loss in the last."""

    def __init__(self, settings: Settings, region: Region, stage: int, stages: int) -> None:
        super().__init__()
        self.settings, self.region = settings, region
        self.is_first, self.is_last = stage == 0, stage == stages - 1
        if self.is_first and not settings.rotary:
            self.positions = nn.Embedding(settings.length, settings.width)
        if self.is_first or self.is_last:  # the head's weight is that of the embedding
            self.tokens = nn.Embedding(settings.vocabulary // region.ranks, settings.width)
        layers = settings.layers // stages
        self.layers = nn.ModuleList(Layer(settings, region) for _ in range(layers))
        if self.is_last:
            self.norm = settings.norm(settings.width)

    def forward(self, x: Tensor, target: Tensor | None = None) -> Tensor:
        """Map tokens (N, L), or what the stage before sent, to what is sent on, or the loss."""
        if self.is_first:
            x = self.embedded(x)
        for layer in self.layers:
            full = self.settings.recompute == "full"
            x = checkpoint(layer, x, **REENTRANT) if full else layer(x)
        if target is None:
            return x
        logits = Product.apply(self.norm(x), self.tokens.weight, self.region, self.settings)
        if not self.settings.loss_in_place:
            return Loss.apply(logits.float(), target, self.region, False).mean()
        return Loss.apply(logits, target, self.region, True).mean()

    def embedded(self, tokens: Tensor) -> Tensor:
        """Look tokens and positions up: (L, N, W), or this rank's part of it."""
        classes = self.tokens.num_embeddings
        x = self.tokens(tokens % classes).transpose(0, 1).contiguous()
        if self.region.ranks > 1:
            others = (tokens >= classes).t()[..., None]
            x = Reduced.apply(x.masked_fill_(others, 0), self.region)
        if not self.settings.rotary:
            x = x + self.positions.weight[: x.shape[0], None]
        return functional.dropout(x, self.settings.dropout)


class Buffers:
    """One buffer of all gradients, and with the distributed optimizer one of all parameters."""

    def __init__(self, model: nn.Module, settings: Settings, ranks: int) -> None:
        self.sharded = settings.distributed_optimizer
        parameters = list(model.parameters())
        size = sum(parameter.numel() for parameter in parameters)
        size += -size % ranks if self.sharded else 0
        dtype = torch.float32 if settings.gradients == "fp32" else settings.dtype
        self.gradients = torch.zeros(size, dtype=dtype)
        self.parameters = torch.empty(size if self.sharded else 0, dtype=settings.dtype)
        start = 0
        for parameter in parameters:
            place = slice(start, start + parameter.numel())
            parameter.main_grad = self.gradients[place].view(parameter.shape)
            if self.sharded:
                parameter.data = self.parameters[place].view(parameter.shape)
            parameter.register_post_accumulate_grad_hook(accumulate)
            start = place.stop


def accumulate(parameter: nn.Parameter) -> None:
    """Move a parameter's gradient to its place in the buffer."""
    if parameter.grad is not None:  # a product may have added it itself
        parameter.main_grad.add_(parameter.grad)
        parameter.grad = None


class MixedAdam(torch.optim.Optimizer):
    """Adam on masters in float32: of all parameters, or of this rank's part of their buffer."""

    def __init__(self, parameters: Any, buffers: Buffers, group: Any, *, fused: bool) -> None:
        super().__init__(parameters, {"fused": fused})
        self.own: list[nn.Parameter] = self.param_groups[0]["params"]
        self.buffers, self.group = buffers, group
        self.ranks = 1 if group is None else dist.get_world_size(group)
        sources = [*self.own]
        if buffers.sharded:
            self.part = slice(0, buffers.parameters.numel() // self.ranks)
            sources = [buffers.parameters[self.part]]
        self.masters = [source.detach().float().requires_grad_() for source in sources]
        decayed = [master for master in self.masters if master.dim() > 1 or buffers.sharded]
        plain = [master for master in self.masters if master.dim() == 1 and not buffers.sharded]
        groups = [{"params": group} for group in (decayed, plain) if group]
        self.adam = torch.optim.AdamW(groups, lr=1e-4, fused=fused, foreach=not fused)
        for parameter, master in zip(self.own, self.masters, strict=False):
            self.state[parameter] = {"master": master}

    @torch.no_grad()
    def step(self) -> None:
        """Reduce gradients, step the masters, and round them to parameters."""
        buffer, shared = self.buffers, self.ranks > 1
        if buffer.sharded:
            gradients = [buffer.gradients[self.part]]
            targets = [buffer.parameters[self.part]]
            if shared:
                dist.reduce_scatter_tensor(gradients[0], buffer.gradients, group=self.group)
        else:
            gradients = [parameter.main_grad for parameter in self.own]
            targets = self.own
            if shared:
                dist.all_reduce(buffer.gradients, group=self.group)
        for master, gradient in zip(self.masters, gradients, strict=True):
            master.grad = gradient.float()
        self.adam.step()
        for target, master in zip(targets, self.masters, strict=True):
            target.copy_(master)
        if buffer.sharded and shared:
            dist.all_gather_into_tensor(buffer.parameters, targets[0], group=self.group)
        for parameter, master in zip(self.own, self.masters, strict=False):
            self.state[parameter].update(self.adam.state[master])

    def zero_grad(self) -> None:
        """Drop the masters' gradients and clear the buffer."""
        self.adam.zero_grad()
        self.buffers.gradients.zero_()


class OneForwardOneBackward:
    """The schedule of micro-batches in one stage, as torchgauge takes a pipeline's."""

    def __init__(self, stage: Stage, mesh: Any, settings: Settings) -> None:
        self._stage = SimpleNamespace(submod=stage, is_first=stage.is_first, is_last=stage.is_last)
        self.settings, self.stages, self.number = settings, 1, 0
        if "pp" in mesh.mesh_dim_names:
            self.group = mesh["pp"].get_group()
            self.stages, self.number = self.group.size(), self.group.rank()
        length = settings.length // (stage.region.ranks if stage.region.sequence else 1)
        self.shape = (length, settings.micro_batch, settings.width)

    def step(self, *args: Tensor, target: Tensor | None = None, **_: Any) -> None:
        """Run forward passes until the last stage has begun, then one of each, then the rest."""
        tokens = args[0].split(self.settings.micro_batch) if args else ()
        targets = target.t().split(self.settings.micro_batch, 1) if target is not None else ()
        count = self.settings.micro_batches
        ahead = min(self.stages - self.number - 1, count)
        alive: list[tuple[Any, ...]] = []
        for index in range(count + ahead):
            if index < count:
                x = tokens[index] if tokens else self.received(self.number - 1)
                alive.append(self.forward(x, targets[index] if targets else None))
                del x
            if index >= ahead:
                self.backward(*alive.pop(0))

    def forward(self, x: Tensor, target: Tensor | None) -> tuple[Any, Any]:
        """Return the input and what the backward pass begins with: no output that is sent."""
        if x.is_floating_point():
            x.requires_grad_()
        output = self._stage.submod(x, target)
        if self._stage.is_last:
            return x, output / self.settings.micro_batches
        dist.send(output, group=self.group, group_dst=self.number + 1)
        return x, torch.autograd.graph.get_gradient_edge(output)

    def backward(self, x: Tensor, begin: Any) -> None:
        """Run the backward pass of a micro-batch, between its neighbours."""
        gradient = None if self._stage.is_last else self.received(self.number + 1)
        torch.autograd.backward([begin], [gradient])
        if not self._stage.is_first:
            dist.send(x.grad, group=self.group, group_dst=self.number - 1)

    def received(self, source: int) -> Tensor:
        """Return what a neighbour sends."""
        x = torch.empty(self.shape, dtype=self.settings.dtype)
        dist.recv(x, group=self.group, group_src=source)
        return x


def job(settings: Settings, mesh: Any) -> Any:
    """Return a rank's schedule, its tokens, and how it is trained."""
    names = mesh.mesh_dim_names
    region = Region(mesh["tp"].get_group() if "tp" in names else None, settings)
    data = mesh["dp"].get_group() if "dp" in names else None
    stages = mesh["pp"] if "pp" in names else None
    number, count = (0, 1) if stages is None else (stages.get_local_rank(), stages.size())
    model = Stage(settings, region, number, count).to(settings.dtype)
    buffers = Buffers(model, settings, 1 if data is None else dist.get_world_size(data))
    optimizer = partial(MixedAdam, buffers=buffers, group=data, fused=settings.fused)
    samples = settings.micro_batch * settings.micro_batches
    tokens = torch.randint(settings.vocabulary, (samples, settings.length))
    return (
        OneForwardOneBackward(model, mesh, settings),
        tg.Inputs((tokens,), {"target": tokens}),
        tg.Training(lambda outputs, _: outputs, optimizer),
    )


def tiny(mesh: Any) -> Any:
    """Return a rank of a model of 0.2 million parameters."""
    return job(TINY, mesh)
