"""Tiny models that candidates fit, with inputs."""

import torch
from torch import nn


class Attention(nn.Module):
    """Attention written by hand, as users write it."""

    def __init__(self, width=8):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out(scores @ v)


def convolutional():
    """Batch norms with statistics that matter when they are folded wrongly."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    for layer in model:
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.running_mean, -1, 1)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 2)
            nn.init.uniform_(layer.bias, -1, 1)
    return model.eval(), torch.randn(2, 3, 8, 8)


def bert(**changes):
    """A transformers model whose attention has a switch, with integer keyword inputs."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, attn_implementation=changes.pop("attention", "eager"),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config).eval()
    return model, {"input_ids": torch.arange(8).reshape(2, 4), **changes}
