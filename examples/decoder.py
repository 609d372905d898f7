"""A small decoder of text in plain torch, after GPT-2 (Radford et al., 2019), with random weights.

    torchgauge profile examples/decoder.py:decoder
    torchgauge profile examples/decoder.py:training --train

A call with targets returns its own loss, so `--train` needs no `--loss`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 256
CONTEXT = 64
WIDTH = 64
HEADS = 4
BLOCKS = 3


class Output(NamedTuple):
    """What a call returns.

    Attributes:
        logits: (N, L, vocabulary).
        loss: The mean cross-entropy, if targets were given.
    """

    logits: Tensor
    loss: Tensor | None


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, L, width) to (N, L, width)."""
        heads = self.qkv(x).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (N, heads, L, width / heads)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a perceptron, each after a normalisation and around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, L, width) to (N, L, width)."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """Predicts the next token at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Output:
        """Map tokens (N, L) to logits, and with targets (N, L) to the loss too."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        logits = self.head(self.norm(self.blocks(x)))
        if targets is None:
            return Output(logits, None)
        return Output(logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))


def decoder() -> tuple[nn.Module, Tensor]:
    """Return the model and one sequence of random tokens."""
    return Decoder(), torch.randint(VOCABULARY, (1, CONTEXT))


def training() -> tuple[nn.Module, dict[str, Tensor]]:
    """Return the model and eight sequences with their targets."""
    text = torch.randint(VOCABULARY, (8, CONTEXT + 1))
    return Decoder(), {"tokens": text[:, :-1], "targets": text[:, 1:]}
