"""A decoder of Llama 3's shape, sharded by FSDP2, tensor and sequence parallel, for many devices.

    torchgauge count examples/llama_mesh.py:tiny --mesh fsdp=4,tp=2 --on h100

`llama_8b`, `llama_70b` and `llama_405b` are counted likewise, in half a minute and more.
After Llama 3 (arXiv 2407.21783) and the plans of torch's tutorials of tensor parallelism. Each
function takes a mesh whose dimensions are "fsdp", "tp" or both, and returns what one rank has: the
sharded model, its inputs, and how it is trained. Random weights; nothing but torch is needed.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

import torchgauge as tg


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a model and of one rank's batch; `norm` is the class of its normalisations."""

    width: int = 4096
    layers: int = 32
    heads: int = 32
    key_heads: int = 8
    hidden: int = 14336
    vocabulary: int = 128256
    batch: int = 1
    length: int = 8192
    norm: type[nn.Module] = nn.RMSNorm


DEAR = (
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "_c10d_functional::reduce_scatter_tensor",
)
TINY = Shape(256, 3, 8, 4, 512, 1024, batch=4, length=256)
LLAMA_70B = Shape(8192, 80, 64, 8, 28672)
LLAMA_405B = Shape(16384, 126, 128, 8, 53248)


class Attention(nn.Module):
    """Causal attention whose keys and values are shared by groups of heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.size = shape.width // shape.heads
        self.repeats = shape.heads // shape.key_heads
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, shape.key_heads * self.size, bias=False)
        self.value = nn.Linear(shape.width, shape.key_heads * self.size, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, rotations: Tensor) -> Tensor:
        """Map (N, L, width) to (N, L, width); as many heads as this rank has."""
        query, key, value = (
            layer(x).unflatten(-1, (-1, self.size)) for layer in (self.query, self.key, self.value)
        )
        query, key = rotated(query, rotations), rotated(key, rotations)
        key, value = (
            heads[:, :, :, None].expand(-1, -1, -1, self.repeats, -1).flatten(2, 3)
            for heads in (key, value)
        )
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        return self.out(mixed.transpose(1, 2).contiguous().flatten(2))


def rotated(heads: Tensor, rotations: Tensor) -> Tensor:
    """Rotate pairs of features (N, L, heads, size) by their positions' angles."""
    pairs = torch.view_as_complex(heads.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations[None, :, None]).flatten(3).type_as(heads)


class FeedForward(nn.Module):
    """A perceptron with a gate (SwiGLU)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, L, width) to (N, L, width)."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and a perceptron, each after a normalisation and around a shortcut."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = shape.norm(shape.width)
        self.attention = Attention(shape)
        self.forward_norm = shape.norm(shape.width)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, rotations: Tensor) -> Tensor:
        """Map (N, L, width) to (N, L, width)."""
        x = x + self.attention(self.attention_norm(x), rotations)
        return x + self.feed_forward(self.forward_norm(x))


class Llama(nn.Module):
    """Predicts the next token at every position."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = shape.norm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        angles = torch.zeros(shape.length, shape.width // shape.heads // 2)
        self.register_buffer("rotations", torch.polar(torch.ones_like(angles), angles))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (N, L) to logits (N, L, vocabulary)."""
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.rotations)
        return self.head(self.norm(x))


def parallelize(model: Llama, mesh: DeviceMesh) -> None:
    """Divide heads, hidden features and vocabulary among ranks, and the sequence between them."""
    whole, sequence = Replicate(), Shard(1)
    parallelize_module(model, mesh, {
        "tokens": RowwiseParallel(input_layouts=whole, output_layouts=sequence),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(
            input_layouts=sequence, output_layouts=Shard(-1), use_local_output=False
        ),
    })  # fmt: skip
    gathered = {"input_layouts": (sequence,), "desired_input_layouts": (whole,)}
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(sequence, None), desired_input_layouts=(whole, None)
            ),
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.out": RowwiseParallel(output_layouts=sequence),
            "forward_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(**gathered),
            "feed_forward.gate": ColwiseParallel(),
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(output_layouts=sequence),
        })  # fmt: skip


def checkpointed(model: Llama, how: str) -> None:
    """Wrap each block to compute activations again: all of them ("full"), or the cheap ("op")."""
    if how == "none":
        return
    context = {"context_fn": selective} if how == "op" else {}
    for index, block in enumerate(model.blocks):
        model.blocks[index] = checkpoint_wrapper(block, preserve_rng_state=False, **context)


def selective() -> Any:
    """Keep what attention, reductions between ranks and every second product give."""
    products = Counter()

    def policy(context: Any, function: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        keep = function.name() in DEAR
        if function is torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            keep = products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def fully_sharded(model: Llama, mesh: DeviceMesh, *, reshard: bool, offload: bool) -> None:
    """Shard parameters, gradients and optimizer states, gathered block by block in bfloat16."""
    policy = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32),
        **({"offload_policy": CPUOffloadPolicy(pin_memory=False)} if offload else {}),
    }
    for block in model.blocks[:-1]:
        fully_shard(block, reshard_after_forward=reshard, **policy)
    # What the backward pass needs first is not dropped.
    fully_shard(model.blocks[-1], reshard_after_forward=False, **policy)
    fully_shard(model, reshard_after_forward=False, **policy)


def job(
    shape: Shape,
    mesh: DeviceMesh,
    checkpoint: str = "op",
    *,
    reshard: bool = True,
    offload: bool = False,
) -> tuple[nn.Module, Tensor, tg.Training]:
    """Return a rank's model, its tokens, and how it is trained."""
    model, names = Llama(shape), mesh.mesh_dim_names or ()
    if "tp" in names:
        parallelize(model, mesh["tp"])
    checkpointed(model, checkpoint)
    if "fsdp" in names:
        fully_sharded(model, mesh["fsdp"], reshard=reshard, offload=offload)
    text = torch.randint(shape.vocabulary, (shape.batch, shape.length + 1))

    def loss(logits: Tensor, _: Any) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].flatten())

    return model, text[:, :-1], tg.Training(loss, partial(torch.optim.AdamW, lr=1e-3))


def tiny(mesh: DeviceMesh, checkpoint: str = "op", batch: int = 4) -> Any:
    """Return a rank of a model of 1.6 million parameters."""
    return job(dataclasses.replace(TINY, batch=batch), mesh, checkpoint)


def llama_8b(mesh: DeviceMesh, checkpoint: str = "op", batch: int = 1) -> Any:
    """Return a rank of Llama 3.1 8B."""
    return job(Shape(batch=batch), mesh, checkpoint)


def llama_70b(mesh: DeviceMesh, checkpoint: str = "full", batch: int = 1) -> Any:
    """Return a rank of Llama 3.1 70B."""
    return job(dataclasses.replace(LLAMA_70B, batch=batch), mesh, checkpoint)


def llama_405b(mesh: DeviceMesh, checkpoint: str = "full", batch: int = 1) -> Any:
    """Return a rank of Llama 3.1 405B."""
    return job(dataclasses.replace(LLAMA_405B, batch=batch), mesh, checkpoint)
