"""Models with one fault each, which a recording of a real run has to show, and sound ones."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

HEADS, LENGTH, WIDTH = 8, 256, 256


class EagerAttention(nn.Module):
    """Attention that keeps its scores."""

    def __init__(self):
        super().__init__()
        self.projection = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        query, key, value = self._split(self.projection(x))
        scores = query @ key.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
        return (scores.softmax(-1) @ value).transpose(1, 2).reshape(x.shape)

    def _split(self, joined):
        shape = (*joined.shape[:2], HEADS, WIDTH // HEADS)
        return (part.view(shape).transpose(1, 2) for part in joined.chunk(3, -1))


class FusedAttention(EagerAttention):
    """The same through torch's own attention."""

    def forward(self, x):
        attended = functional.scaled_dot_product_attention(*self._split(self.projection(x)))
        return attended.transpose(1, 2).reshape(x.shape)


class MathAttention(FusedAttention):
    """Torch's own attention, restricted to its plain implementation."""

    def forward(self, x):
        with sdpa_kernel(SDPBackend.MATH):
            return super().forward(x)


class WrittenRMSNorm(nn.Module):
    """A normalisation made of operators, one kernel each."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


class Activation(nn.Module):
    """A chain of elementwise operations."""

    def forward(self, x):
        gate = torch.sigmoid(1.7 * x) * x
        return (gate + 0.5 * x).tanh() - 0.1 * gate


class Transposed(nn.Module):
    """A linear layer between transposes that are copied."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        for _ in range(4):
            x = self.layer(x.transpose(1, 2).contiguous().transpose(1, 2).contiguous())
        return x


class CastedLayers(nn.Module):
    """Layers in bfloat16 between activations in float32."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32).bfloat16() for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x.bfloat16()).float()
        return x


class AlwaysDropped(nn.Module):
    """Dropout that `eval()` does not end."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return functional.dropout(self.layer(x), 0.1)  # `training` is True by default


class Checkpointed(nn.Module):
    """Blocks whose activations are computed again for the backward pass."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(perceptron() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class Filled(nn.Module):
    """A buffer of zeros for each call, of which little is used."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return self.layer(x) + torch.zeros(4096, 4096)[: x.shape[0], :64]


def perceptron(width=256, layers=2):
    """Some linear layers with an activation that is one operator."""
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts)


def normalised(width=256):
    return nn.Sequential(nn.Linear(width, width), WrittenRMSNorm(width))


def bag(entries=200_000, width=64):
    """An embedding of which a batch needs few entries."""
    return nn.Sequential(nn.Embedding(entries, width), nn.Linear(width, 8))


def activated(width=64):
    return nn.Sequential(nn.Linear(width, width), Activation())
