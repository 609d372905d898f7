"""ResNet-18 in plain torch: a model to try torchgauge on, with nothing else to install.

    torchgauge profile examples/resnet18.py:resnet18

The architecture is that of He et al., "Deep Residual Learning for Image Recognition" (2015), with
11,689,512 parameters; the weights are random.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, C, H / stride, W / stride)."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + self.shortcut(x))


class ResNet18(nn.Module):
    """A classifier of 224×224 images into `classes` classes."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.layers = nn.Sequential(
            *(
                nn.Sequential(BasicBlock(before, after, stride), BasicBlock(after, after, 1))
                for before, after, stride in widths
            )
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map (N, 3, 224, 224) to (N, classes)."""
        features = self.layers(self.stem(images))
        return self.head(self.pool(features).flatten(1))


def resnet18() -> tuple[nn.Module, Tensor]:
    """Return the model and one example image."""
    return ResNet18(), torch.randn(1, 3, 224, 224)
