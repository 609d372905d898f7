"""Measure what timing a forward costs: empty calls, timed and bare, in turns."""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

from torchgauge.measure.generation.forwards import ThreadForwards, timed

ROUNDS, CALLS = 31, 50


class _Empty(nn.Module):
    """A model that does nothing with the arguments of a decode step."""

    def forward(self, input_ids: torch.Tensor, past_key_values: _EmptyCache) -> None:
        """Do nothing."""


class _EmptyCache:
    """A cache that answers as one of transformers does: from its first layer's keys."""

    def __init__(self) -> None:
        self.layers = [_EmptyLayer()]


class _EmptyLayer:
    def __init__(self) -> None:
        self.keys = torch.zeros(1, 1, 8, 1)
        self.is_initialized = True

    def get_seq_length(self) -> int:
        """Return the positions, as a layer of transformers does."""
        if not self.is_initialized or self.keys.numel() == 0:
            return 0
        return self.keys.shape[-2]


def timer_cost() -> float:
    """Return the seconds that timing adds to a forward on this machine now, the median of rounds.

    What recording two events on a GPU adds is not in it.
    """
    model, cache, of_thread = _Empty(), _EmptyCache(), ThreadForwards()
    ids = torch.zeros(1, 1, dtype=torch.long)
    added = []
    for _ in range(ROUNDS):
        bare = _turn_time(model, ids, cache)
        with timed(model, "model", of_thread):
            added.append(_turn_time(model, ids, cache) - bare)
        of_thread.ongoing.forwards.clear()
    return max(0.0, statistics.median(added))


def _turn_time(model: nn.Module, ids: torch.Tensor, cache: _EmptyCache) -> float:
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        model(input_ids=ids, past_key_values=cache)
    return (time.perf_counter_ns() - begin) * 1e-9 / CALLS
