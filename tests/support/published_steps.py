"""Published training runs with the sizes of their models, and the models on the meta device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Sizes(NamedTuple):
    """A decoder's sizes; `key_values` are heads of keys and values, `inner` the MLP's width.

    `positions` is 0 where positions have no parameters; `gated` MLPs have three products.
    """

    layers: int
    hidden: int
    heads: int
    head_size: int
    key_values: int
    inner: int
    vocabulary: int
    positions: int = 0
    gated: bool = False
    biases: bool = True


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        width, of_keys = sizes.heads * sizes.head_size, sizes.key_values * sizes.head_size
        hidden, biases = sizes.hidden, sizes.biases
        self.norm_attention = nn.LayerNorm(hidden, bias=biases)
        self.norm_mlp = nn.LayerNorm(hidden, bias=biases) if not sizes.gated else None
        self.inputs = nn.Linear(hidden, width + 2 * of_keys, bias=biases)
        self.output = nn.Linear(width, hidden, bias=biases)
        self.up = nn.Linear(hidden, (1 + sizes.gated) * sizes.inner, bias=biases)
        self.down = nn.Linear(sizes.inner, hidden, bias=biases)

    def forward(self, x):
        normed = self.norm_attention(x)
        if self.norm_mlp is None:  # side by side, as in PaLM
            return x + self.attended(normed) + self.mlp(normed)
        x = x + self.attended(normed)
        return x + self.mlp(self.norm_mlp(x))

    def attended(self, x):
        sizes = self.sizes
        counts = sizes.heads, sizes.key_values, sizes.key_values
        parts = self.inputs(x).split([count * sizes.head_size for count in counts], dim=-1)
        q, k, v = (
            part.unflatten(-1, (count, sizes.head_size)).transpose(1, 2)
            for part, count in zip(parts, counts, strict=True)
        )
        k, v = (part.expand(-1, sizes.heads, -1, -1) for part in (k, v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def mlp(self, x):
        if not self.sizes.gated:
            return self.down(nn.functional.gelu(self.up(x)))
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(nn.functional.silu(gate) * up)


class Decoder(nn.Module):
    """A decoder of these sizes whose output layer is its embedding."""

    def __init__(self, sizes: Sizes, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.positions = nn.Embedding(sizes.positions, sizes.hidden) if sizes.positions else None
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.hidden, bias=sizes.biases)
        self.checkpointed = checkpointed

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.blocks:
            # Whole blocks again, as Megatron does; the other kind leaves the last product out.
            x = checkpoint(block, x, use_reentrant=True) if self.checkpointed else block(x)
        return nn.functional.linear(self.norm(x), self.embedding.weight)


class Published(NamedTuple):
    """A published run: tokens a second on all devices, the peak of one, and what it reached."""

    sizes: Sizes
    sequence: int
    parameters: int
    tokens_per_second: float
    devices: int
    peak: float
    mfu: float


def mpt(layers: int, hidden: int, sequence: int) -> Sizes:
    """Return an MPT's sizes: heads of 128, an MLP four times as wide, learned positions."""
    return Sizes(
        layers, hidden, hidden // 128, 128, hidden // 128, 4 * hidden, 50_368, positions=sequence
    )


# llm-foundry, scripts/train/benchmarking/README.md, "H100 80GB BF16": parameters ("NumParams"),
# tokens a second and GPU, MFU; sizes of scripts/train/yamls/pretrain.
H100 = 989e12
MPT = {
    "7b": Published(mpt(32, 4096, 2048), 2048, 6_658_859_008, 10_643, 1, H100, 46.44),
    "70b": Published(mpt(80, 8192, 2048), 2048, 64_862_437_376, 1_039, 1, H100, 42.57),
    "30b": Published(mpt(48, 7168, 8192), 8192, 30_019_254_272, 1_384, 1, H100, 29.92),
    "1b": Published(mpt(24, 2048, 65_536), 65_536, 1_445_974_016, 5_506, 1, H100, 26.34),
}
# arXiv 2204.02311: table 1 (540B), section 4.1 and appendix B; 275 TFLOP/s of a TPU v4.
PALM = Published(
    Sizes(118, 18_432, 48, 256, 1, 73_728, 256_000, gated=True, biases=False),
    2048, 540_350_000_000, 238_300, 6144, 275e12, 46.2,
)  # fmt: skip
# arXiv 2201.11990, sections 2.2 and 2.3: 1,920 sequences a step; GPUs: seconds, TFLOP/s of a GPU.
MT_NLG = Sizes(105, 20_480, 128, 160, 128, 81_920, 51_200, positions=2048)
MT_NLG_BATCH, MT_NLG_SEQUENCE = 1_920, 2_048
MT_NLG_STEPS = {2_240: (60.1, 126), 2_800: (50.2, 121), 3_360: (44.4, 113)}
