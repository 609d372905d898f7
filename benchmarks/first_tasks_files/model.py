"""The model of the tasks: its second block is slow, and `changed` makes the third slower."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, repeats: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(32, 32, 3, padding=1)
        self.repeats = repeats

    def forward(self, x):
        for _ in range(self.repeats):
            y = self.conv(x).relu()
        return x + y


class Net(nn.Module):
    def __init__(self, repeats: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.blocks = nn.Sequential(*[Block(number) for number in repeats])
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def make():
    return Net((1, 4, 1)).eval(), torch.randn(4, 3, 64, 64)


def changed():
    return Net((1, 4, 3)).eval(), torch.randn(4, 3, 64, 64)
