"""Layers' own times by stamps: whose time is whose."""

import time

import torch
from torch import nn

from torchgauge.measure.layer_times import FEWEST, own_times


class Sleeping(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.calls = seconds, 0

    def forward(self, x):
        self.calls += 1
        time.sleep(self.seconds)
        return x


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.short, self.long = Sleeping(0.004), Sleeping(0.016)

    def forward(self, x):
        x = self.short(self.short(x))
        time.sleep(0.008)
        return self.long(x)


def test_a_layer_has_its_own_time_without_those_it_calls():
    model = Outer()
    found = own_times(model, lambda: model(torch.ones(1)), time.perf_counter_ns)
    assert set(found) == {"", "short", "long"}
    assert 0.008 <= found["short"] < found["long"]  # it is called twice
    assert found["long"] >= 0.016
    assert 0.008 <= found[""] < found["long"]
    assert model.long.calls >= FEWEST + 1


def test_a_plain_function_has_one_place():
    found = own_times(print, lambda: None, time.perf_counter_ns)
    assert found == {}
