"""Modules nest as deep under instruments as without them."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.errors import MeasurementError
from torchgauge.measure.memory.simulated_step import simulate
from torchgauge.measure.parallel.parallel_options import ParallelOptions
from torchgauge.measure.parallel.rank_count import ParallelSource, count_ranks
from torchgauge.targets.builds.source import Source
from torchgauge.targets.hygiene.recursion import deeper, recursion_limit

LEVEL = 4 * 4 * 2 * 2  # FLOPs of Linear(4, 4) on two rows


def nested(levels: int) -> nn.Module:
    model = nn.Linear(4, 4)
    for _ in range(levels):
        model = nn.Sequential(model, nn.Linear(4, 4))
    return model


@pytest.fixture(scope="module")
def deepest():
    """As many levels as torch alone can call from here, less two for the frames of tests."""

    def runs(levels: int) -> bool:
        try:
            nested(levels)(torch.ones(2, 4))
        except RecursionError:
            return False
        return True

    low, high = 10, sys.getrecursionlimit()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return low - 2


@pytest.mark.thorough
@pytest.mark.parametrize("backward", [False, True])
def test_a_count(deepest, backward):
    cost = tg.count_cost(nested(deepest), torch.ones(2, 4), backward=backward)
    products = 3 if backward else 1  # the input's gradient is none of the first layer's
    assert cost.matmul_flops == LEVEL * (products * (deepest + 1) - backward)
    assert len(cost.nodes) == 2 * deepest + 1


@pytest.mark.thorough
def test_a_profile(deepest, monkeypatch):
    monkeypatch.delattr("os.fork")  # so that the model travels to other processes as a pickle
    options = {"effort": "quick", "iterations": 2, "roofs": False}
    profile = tg.profile(nested(deepest), (torch.ones(2, 4),), **options)
    assert [w for w in profile.all_warnings if w.failed] == []
    assert len(profile.tree.rows) > 2 * deepest
    assert profile.memory.peak > 0


@pytest.mark.slow
def test_steps_of_training_that_are_simulated(deepest):
    inputs = torch.ones(2, 4)
    source = Source.of_object(nested(deepest), inputs, training=True)
    assert simulate(source.open()).peak > 0
    job = ParallelSource(source.target, options=ParallelOptions(mesh=(("fsdp", 2),)))
    assert count_ranks(job).parameters == 20 * (deepest + 1)


def test_a_call_without_an_end_still_ends_and_names_the_programs_own_limit():
    class Endless(nn.Module):
        def forward(self, x):
            return self(x)

    limit = sys.getrecursionlimit()
    with pytest.raises(MeasurementError, match=f"The limit is {limit:,} calls") as raised:
        tg.count_cost(Endless(), torch.ones(2, 4))
    assert raised.value.id == "recursion-limit"
    assert sys.getrecursionlimit() == limit


def test_blocks_overlap_and_a_limit_that_the_program_sets_within_stays_its_own():
    limit = sys.getrecursionlimit()
    try:
        with deeper(100):
            with deeper(50):
                assert (sys.getrecursionlimit(), recursion_limit()) == (limit + 150, limit)
            sys.setrecursionlimit(limit + 400)
            assert recursion_limit() == limit + 300
        assert sys.getrecursionlimit() == recursion_limit() == limit + 300
    finally:
        sys.setrecursionlimit(limit)
