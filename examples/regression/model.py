"""A classifier of texts, before and after a change that slows one of its layers.

    cd examples/regression
    torchgauge gate --base-target model.py:before model.py:after

The change: the mean over a text's words is taken text by text. The outputs are the same, so no test
of outputs fails.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

TEXTS, WORDS, VOCABULARY, WIDTH = 256, 16, 1000, 32


class MaskedMean(nn.Module):
    """The mean over the words of each text; texts differ in length."""

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Map (texts, words, width) and the lengths to (texts, width)."""
        mask = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
        return (words * mask[:, :, None]).sum(1) / lengths[:, None]


class LoopedMean(nn.Module):
    """The same mean in one line less: it runs three operators for each text."""

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Map (texts, words, width) and the lengths to (texts, width)."""
        return torch.stack([text[:n].mean(0) for text, n in zip(words, lengths, strict=True)])


class Classifier(nn.Module):
    """Words to one of ten classes."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.pool = pool
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Map (texts, words) and the lengths to (texts, 10)."""
        return self.head(self.pool(self.encoder(self.embedding(words)), lengths))


def before() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Return the model as it was, and a batch of texts."""
    return Classifier(MaskedMean()), texts()


def after() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Return the model with the change, and a batch of texts."""
    return Classifier(LoopedMean()), texts()


def texts() -> tuple[Tensor, Tensor]:
    """Return a batch of texts as word numbers, and how many words each has."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(VOCABULARY, (TEXTS, WORDS), generator=generator)
    return words, torch.randint(1, WORDS + 1, (TEXTS,), generator=generator)
