"""Train the small decoder on sequences of numbers: a plain loop that knows nothing of torchgauge.

    python examples/train.py
    torchgauge run --output-dir results examples/train.py
    torchgauge run --lines examples/train.py --steps 20

Each sequence counts upwards by a step of its own, so the loss falls quickly.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from decoder import CONTEXT, VOCABULARY, Decoder


class Counting(Dataset[tuple[Tensor, Tensor]]):
    """Sequences start, start + step, start + 2·step, … with their successors as targets."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start, step = index % VOCABULARY, 1 + index % 7
        numbers = (start + step * torch.arange(CONTEXT + 1)) % VOCABULARY
        return numbers[:-1], numbers[1:]


def main() -> None:
    """Train, and print the loss of the first and of the last step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for tokens, targets in DataLoader(Counting(options.steps * options.batch), options.batch):
        optimizer.zero_grad()
        loss = model(tokens, targets).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.2f} → {losses[-1]:.2f} in {len(losses)} steps")


if __name__ == "__main__":
    main()
