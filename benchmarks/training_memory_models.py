"""Small models of many kinds, with inputs and a loss, whose training steps hold 5 to 200 MB."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Loss = Callable[[Any, Any], torch.Tensor]


def squares(outputs: Any, _inputs: Any) -> torch.Tensor:
    """Return the mean square of the first output: a loss that needs no labels."""
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    return first.float().square().mean()


def classes(outputs: Any, _inputs: Any) -> torch.Tensor:
    """Return the cross entropy of logits, classes in dimension 1, against class 0."""
    labels = torch.zeros((len(outputs), *outputs.shape[2:]), dtype=torch.int64)
    return functional.cross_entropy(outputs, labels)


def own(outputs: Any, _inputs: Any) -> torch.Tensor:
    """Return the loss that the model makes itself."""
    return outputs.loss  # type: ignore[no-any-return]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model to be made, the inputs of one call, its loss.

    `parts` returns the modules whose activations are made anew in the backward pass where the case
    is checkpointed; None where it is not.
    """

    model: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...] | dict[str, torch.Tensor]]
    loss: Loss = squares
    parts: Callable[[Any], Any] | None = None


def checkpointed(model: nn.Module, case: Case) -> nn.Module:
    """Return the model with checkpoints around its parts, as torch or transformers place them."""
    assert case.parts is not None
    chosen = case.parts(model)
    if chosen is None:
        model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
        return model
    for part in chosen:
        part.forward = functools.partial(checkpoint, part.forward, use_reentrant=False)
    return model


def mlp(widths: list[int]) -> nn.Sequential:
    """Return blocks of a linear layer and GELU."""
    pairs = itertools.pairwise(widths)
    return nn.Sequential(*(nn.Sequential(nn.Linear(a, b), nn.GELU()) for a, b in pairs))


def convolutions() -> nn.Sequential:
    """Return a plain network of convolutions, batch norm and pooling."""
    blocks = [
        nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
        for a, b in ((3, 32), (32, 64), (64, 128))
    ]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(128 * 64, 10))


class UNet(nn.Module):
    """Three levels down, three up, with skips."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()

        def block(before: int, after: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
                nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
            )  # fmt: skip

        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(map(block, [3, *sizes[:-1]], sizes))
        self.middle = block(sizes[-1], 2 * sizes[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, stride=2) for n in sizes[::-1])
        self.merge = nn.ModuleList(block(2 * n, n) for n in sizes[::-1])
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return four classes of each pixel."""
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips), strict=True):
            x = merge(torch.cat([up(x), skip], 1))
        return self.head(x)  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """Words, a recurrent network, words."""

    def __init__(self, network: nn.RNNBase, words: int = 2000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, network.input_size)
        self.network = network
        width = network.hidden_size * (2 if network.bidirectional else 1)
        self.head = nn.Linear(width, words // 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits of each word, classes in dimension 1."""
        hidden, _ = self.network(self.embedding(ids))
        return self.head(hidden).transpose(1, 2)  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Blocks of causal attention written out as products and a softmax."""

    def __init__(self, width: int = 128, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.mixed = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the last block makes, the input added at each."""
        for mixed, out in zip(self.mixed, self.out, strict=True):
            q, k, v = mixed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~mask, float("-inf")).softmax(-1)
            x = x + out((scores @ v).transpose(1, 2).flatten(2))
        return x


class Experts(nn.Module):
    """Every expert on every token, weighted by a gate."""

    def __init__(self, width: int = 128, experts: int = 6) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(mlp([width, 4 * width, width]) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum."""
        weights = self.gate(x).softmax(-1)
        return torch.stack([e(x) for e in self.experts], -1).mul(weights.unsqueeze(-2)).sum(-1)


class Recommender(nn.Module):
    """Bags of embeddings beside dense features, and their products with each other."""

    def __init__(self, tables: int = 6, rows: int = 20000, width: int = 32) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = mlp([13, 256, width])
        self.top = mlp([width + (tables + 1) ** 2, 256, 1])

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return one score per row."""
        dense = self.bottom(dense)
        each = torch.stack([dense, *(bag(ids[:, i]) for i, bag in enumerate(self.bags))], 1)
        products = torch.bmm(each, each.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([dense, products], 1))  # type: ignore[no-any-return]


class Wave(nn.Module):
    """Gated dilated convolutions over a waveform, with skips."""

    def __init__(self, width: int = 32, depth: int = 6) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, padding=2**i, dilation=2**i) for i in range(depth)
        )
        self.mixes = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the skips."""
        x = self.first(x)
        total = torch.zeros_like(x)
        for gate, mix in zip(self.gates, self.mixes, strict=True):
            left, right = gate(x).chunk(2, 1)
            skip = mix(left.tanh() * right.sigmoid())
            x, total = x + skip, total + skip
        return total


class Normed(nn.Module):
    """Residual blocks of group norm, SiLU and convolutions, as in diffusion models."""

    def __init__(self, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1),
                nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(depth)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features."""
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return x


def autoencoder() -> nn.Sequential:
    """Return strided convolutions, and transposed ones back."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1),
    )  # fmt: skip


def encoder(depth: int = 3, dropout: float = 0.1) -> nn.TransformerEncoder:
    """Return torch's own encoder."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout, batch_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


def vision(name: str, **options: Any) -> Callable[[], nn.Module]:
    """Return what makes a model of torchvision."""

    def make() -> nn.Module:
        from torchvision import models

        return getattr(models, name)(**options)  # type: ignore[no-any-return]

    return make


def timm(name: str) -> Callable[[], nn.Module]:
    """Return what makes a model of timm."""

    def make() -> nn.Module:
        import timm as library

        return library.create_model(name)

    return make


def language(kind: str, **options: Any) -> Callable[[], nn.Module]:
    """Return what makes a small model of transformers."""

    def make() -> nn.Module:
        import transformers

        config, model = kind.split("/")
        return getattr(transformers, model)(getattr(transformers, config)(**options))  # type: ignore[no-any-return]

    return make


def normal(*shape: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return what makes one tensor of random numbers."""
    return lambda: (torch.randn(shape),)


def words(*shape: int, below: int = 2000) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return what makes one tensor of random indices."""
    return lambda: (torch.randint(below, shape),)


def labelled(*shape: int, below: int = 2000) -> Callable[[], dict[str, torch.Tensor]]:
    """Return what makes tokens that are their own labels."""

    def make() -> dict[str, torch.Tensor]:
        ids = torch.randint(below, shape)
        return {"input_ids": ids, "labels": ids.clone()}

    return make


def _every_child(model: nn.Module) -> list[nn.Module]:
    return list(model.children())


def _by_transformers(_: nn.Module) -> None:
    return None


_SMALL = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 2000}
_GPT2 = {"n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": 2000}
_LLAMA = {**_SMALL, "intermediate_size": 384, "num_key_value_heads": 2}

CASES: dict[str, Case] = {
    "MLP, wide": Case(lambda: mlp([1024, 2048, 1024, 10]), normal(64, 1024), classes, _every_child),
    "MLP, large batch": Case(lambda: mlp([256] * 8), normal(4096, 256), squares, _every_child),
    "CNN": Case(convolutions, normal(16, 3, 64, 64), classes),
    "ResNet-18": Case(
        vision("resnet18"), normal(4, 3, 128, 128), classes,
        lambda m: [m.layer1, m.layer2, m.layer3, m.layer4],
    ),
    "MobileNetV2": Case(
        vision("mobilenet_v2"), normal(4, 3, 128, 128), classes, lambda m: list(m.features)[2:]
    ),
    "EfficientNet-B0": Case(vision("efficientnet_b0"), normal(2, 3, 128, 128), classes),
    "DenseNet-121": Case(vision("densenet121"), normal(2, 3, 96, 96), classes),
    "ConvNeXt": Case(timm("convnext_atto"), normal(4, 3, 128, 128), classes, lambda m: m.stages),
    "ViT, torchvision": Case(
        lambda: _vit(), normal(8, 3, 64, 64), classes, lambda m: m.encoder.layers
    ),
    "ViT, timm": Case(timm("vit_tiny_patch16_224"), normal(2, 3, 224, 224), classes),
    "Swin": Case(vision("swin_t"), normal(1, 3, 224, 224), classes),
    "RegNet, timm": Case(timm("regnetx_002"), normal(4, 3, 128, 128), classes),
    "MLP-Mixer, timm": Case(timm("mixer_s32_224"), normal(4, 3, 224, 224), classes),
    "U-Net": Case(UNet, normal(2, 3, 96, 96), classes, lambda m: [*m.down, m.middle, *m.merge]),
    "Autoencoder": Case(autoencoder, normal(8, 3, 96, 96)),
    "WaveNet": Case(Wave, normal(4, 1, 4000)),
    "GroupNorm blocks": Case(Normed, normal(2, 4, 64, 64), squares, lambda m: m.blocks),
    "3-D convolutions": Case(
        lambda: nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 16, 3)),
        normal(2, 1, 16, 48, 48),
    ),
    "LSTM": Case(lambda: Recurrent(nn.LSTM(128, 256, 2, batch_first=True)), words(16, 64), classes),
    "LSTM, bidirectional": Case(
        lambda: Recurrent(nn.LSTM(128, 192, 2, batch_first=True, bidirectional=True)),
        words(16, 64), classes,
    ),
    "LSTM, small batch": Case(
        lambda: Recurrent(nn.LSTM(64, 128, batch_first=True)), words(2, 200), classes
    ),
    "GRU": Case(lambda: Recurrent(nn.GRU(128, 256, 2, batch_first=True)), words(16, 64), classes),
    "RNN": Case(lambda: Recurrent(nn.RNN(128, 256, batch_first=True)), words(16, 64), classes),
    "Transformer encoder": Case(encoder, normal(8, 128, 128), squares, lambda m: m.layers),
    "Encoder, no dropout": Case(lambda: encoder(dropout=0.0), normal(8, 256, 128)),
    "Attention by hand": Case(Attention, normal(4, 192, 128)),
    "Mixture of experts": Case(Experts, normal(4, 128, 128), squares, lambda m: m.experts),
    "Recommender": Case(
        Recommender, lambda: (torch.randn(512, 13), torch.randint(20000, (512, 6, 8)))
    ),
    "BERT": Case(
        language("BertConfig/BertForMaskedLM", **_SMALL, intermediate_size=512),
        labelled(8, 64), own, _by_transformers,
    ),
    "GPT-2": Case(
        language("GPT2Config/GPT2LMHeadModel", **_GPT2), labelled(4, 128), own, _by_transformers
    ),
    "Llama": Case(
        language("LlamaConfig/LlamaForCausalLM", **_LLAMA), labelled(4, 128), own, _by_transformers
    ),
    "T5": Case(
        language("T5Config/T5ForConditionalGeneration", d_model=128, d_ff=512, num_layers=2,
                 num_heads=4, d_kv=32, vocab_size=2000, decoder_start_token_id=0),
        labelled(4, 64), own, _by_transformers,
    ),
    "Whisper-like encoder": Case(
        lambda: nn.Sequential(
            nn.Conv1d(80, 128, 3, padding=1), nn.GELU(), nn.Conv1d(128, 128, 3, 2, 1), nn.GELU()
        ),
        normal(4, 80, 1500),
    ),
}  # fmt: skip


def _vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(
        image_size=64, patch_size=8, num_layers=3, num_heads=4, hidden_dim=128, mlp_dim=512,
        num_classes=10,
    )  # fmt: skip
