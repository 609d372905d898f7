"""Layers' own times by stamps: whose time is whose."""

import pytest
import torch
from tests.support.fakes import FakeClock
from torch import nn

from torchgauge.measure.timeline.layer_times import MIN_STEPS, own_times

CLOCK = FakeClock()


class Lasting(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.calls = seconds, 0

    def forward(self, x):
        self.calls += 1
        CLOCK.advance(self.seconds)
        return x


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.short, self.long = Lasting(0.004), Lasting(0.016)

    def forward(self, x):
        x = self.short(self.short(x))
        CLOCK.advance(0.007)
        return self.long(x)


def test_a_layer_has_its_own_time_without_those_it_calls():
    model = Outer()
    found = own_times(model, lambda: model(torch.ones(1)), CLOCK.now)
    own = pytest.approx({"": 0.007, "short": 0.008, "long": 0.016})  # short runs twice
    assert (found.typical, found.fastest) == (own, own)
    assert model.long.calls >= MIN_STEPS + 1


def test_a_plain_function_has_one_place():
    found = own_times(print, lambda: None, CLOCK.now)
    assert found == ({}, {})
