"""The model, and example inputs for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH = 32


class Digits(nn.Module):
    """Two convolutions and a linear layer: (N, 1, 28, 28) → (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, WIDTH, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(WIDTH * 7 * 7, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of each image."""
        return self.head(self.features(images).flatten(1))


def example() -> tuple[nn.Module, Tensor]:
    """Return the model and a batch of 16 images."""
    return Digits(), torch.randn(16, 1, 28, 28)
