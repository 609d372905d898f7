"""A decoder with rotary positions and grouped keys, and its plans for fsdp, tp and ddp."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import torchgauge as tg
from torchgauge.measure.parallel.checkpointing import checkpoint as checkpointed


class Size(NamedTuple):
    """Widths and numbers of a decoder."""

    width: int
    layers: int
    heads: int
    key_heads: int
    inner: int
    words: int


TINY = Size(256, 3, 8, 4, 512, 1024)
LLAMA_8B = Size(4096, 32, 32, 8, 14336, 128256)
LLAMA_70B = Size(8192, 80, 64, 8, 28672, 128256)


class Attention(nn.Module):
    """Causal attention with rotary positions and fewer key heads than query heads."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.head = size.width // size.heads
        self.copies = size.heads // size.key_heads
        keys = size.key_heads * self.head
        self.query = nn.Linear(size.width, size.width, bias=False)
        self.key = nn.Linear(size.width, keys, bias=False)
        self.value = nn.Linear(size.width, keys, bias=False)
        self.output = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Attend to earlier positions."""
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).view(batch, length, -1, self.head)
            for layer in (self.query, self.key, self.value)
        )
        query, key = rotated(query, turns), rotated(key, turns)
        key, value = (part.repeat_interleave(self.copies, 2) for part in (key, value))
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        return self.output(mixed.transpose(1, 2).reshape(batch, length, -1))


def rotated(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Turn pairs of elements by their position's angles."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns[:, None]).flatten(-2).to(x.dtype)


class Gated(nn.Module):
    """A gated unit of three products."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.gate = nn.Linear(size.width, size.inner, bias=False)
        self.up = nn.Linear(size.width, size.inner, bias=False)
        self.down = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the unit."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and gated unit, each after a norm and beside a residual."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(size.width), Attention(size)
        self.unit_norm, self.unit = nn.RMSNorm(size.width), Gated(size)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Apply the block."""
        x = x + self.attention(self.attention_norm(x), turns)
        return x + self.unit(self.unit_norm(x))


class Decoder(nn.Module):
    """A language model of such blocks."""

    def __init__(self, size: Size, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width)
        self.head = nn.Linear(size.width, size.words, bias=False)
        turns = torch.zeros(length, size.width // size.heads // 2, dtype=torch.complex64)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next word at each position."""
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, self.turns)
        return self.head(self.norm(x))


def shard_tensors(model: Decoder, mesh: Any) -> None:
    """Shard products by columns and rows, and what is between them by positions."""
    gathered = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    plan: dict[str, Any] = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    }
    for number, _ in enumerate(model.blocks):
        block = f"blocks.{number}."
        plan |= {
            block + "attention_norm": SequenceParallel(),
            block + "unit_norm": SequenceParallel(),
            block + "attention": PrepareModuleInput(
                input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
            ),
            block + "unit": PrepareModuleInput(**gathered),
        }
        columns = ("attention.query", "attention.key", "attention.value", "unit.gate", "unit.up")
        rows = ("attention.output", "unit.down")
        plan |= {block + name: ColwiseParallel() for name in columns}
        plan |= {block + name: RowwiseParallel(output_layouts=Shard(1)) for name in rows}
    parallelize_module(model, mesh, plan)


def job(
    mesh: Any,
    *,
    size: Size = TINY,
    batch: int = 2,
    length: int = 256,
    precision: str = "bf16",
    checkpoint: Any = "none",
    optimizer: str = "adamw",
) -> tuple[nn.Module, tuple[torch.Tensor, ...], tg.Training]:
    """Return one rank's model, inputs and training, sharded along the mesh's dimensions."""
    from torchgauge.measure.parallel.sharded_target import optimizer_of

    names = mesh.mesh_dim_names
    model: nn.Module = Decoder(size, length)
    if precision == "bf16" and "fsdp" not in names:
        turns = model.turns
        model.to(torch.bfloat16)
        model.turns = turns
    if "tp" in names and mesh["tp"].size() > 1:
        shard_tensors(model, mesh["tp"])
    checkpointed(model, checkpoint)
    if "fsdp" in names and mesh["fsdp"].size() > 1:
        arguments: dict[str, Any] = {"mesh": mesh["fsdp"]}
        if precision == "bf16":
            arguments["mp_policy"] = MixedPrecisionPolicy(
                param_dtype=torch.bfloat16, reduce_dtype=torch.float32
            )
        *blocks, last = model.blocks
        for block in blocks:
            fully_shard(block, **arguments)
        fully_shard(last, reshard_after_forward=False, **arguments)
        fully_shard(model, reshard_after_forward=False, **arguments)
    if "ddp" in names:
        model = DistributedDataParallel(model, device_mesh=mesh["ddp"])
    tokens = torch.randint(0, size.words, (batch, length))
    labels = torch.randint(0, size.words, (batch, length))

    def loss(outputs: torch.Tensor, _: Any) -> torch.Tensor:
        return functional.cross_entropy(outputs.flatten(0, 1).float(), labels.flatten(0, 1))

    return model, (tokens,), tg.Training(loss=loss, optimizer=optimizer_of(optimizer))


def llama_8b(mesh: Any, checkpoint: Any = "op") -> Any:
    """Llama 3 8B on sequences of 8,192, one a rank."""
    return job(mesh, size=LLAMA_8B, batch=1, length=8192, checkpoint=checkpoint)


def llama_70b(mesh: Any, checkpoint: Any = "full") -> Any:
    """Llama 3 70B on sequences of 8,192, eight a rank of data."""
    return job(mesh, size=LLAMA_70B, batch=8, length=8192, checkpoint=checkpoint)
