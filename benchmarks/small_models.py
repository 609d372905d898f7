"""Models whose layers take microseconds, where instruments cost most."""

from __future__ import annotations

import torch
from torch import nn

Sized = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Recommender(nn.Module):
    """Embedding bags, two small perceptrons and products of pairs between them, as DLRM has."""

    def __init__(self, tables: int = 26, rows: int = 1000, width: int = 16) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", pairs)
        self.top = nn.Sequential(
            nn.Linear(pairs.shape[1] + width, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid()
        )

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """Return one figure for each sample."""
        x = self.bottom(dense)
        features = [x, *(table(sparse[:, at]) for at, table in enumerate(self.tables))]
        stacked = torch.stack(features, dim=1)
        rows, columns = self.pairs
        products = torch.bmm(stacked, stacked.mT)[:, rows, columns]
        return self.top(torch.cat((x, products), dim=1))


def recommender() -> Sized:
    """Return 38 layers, some 0.7 ms in all."""
    inputs = torch.randn(32, 13), torch.randint(0, 1000, (32, 26, 1))
    return Recommender().eval(), inputs


def linears() -> Sized:
    """Return 20 layers of some 6 µs."""
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(20))).eval(), (torch.ones(8, 64),)


def activations() -> Sized:
    """Return 200 layers of some 2 µs, the most of it the module's call."""
    return nn.Sequential(*(nn.ReLU() for _ in range(200))).eval(), (torch.ones(4, 4),)


SMALL = {"recommender": recommender, "20 linear": linears, "200 activations": activations}
