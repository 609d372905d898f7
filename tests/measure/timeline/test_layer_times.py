"""Layers' own times by stamps: whose time is whose."""

import pytest
import torch
from tests.support.fakes import FakeClock
from torch import nn

from torchgauge.measure.timeline import layer_times
from torchgauge.measure.timeline.layer_times import MIN_STEPS, own_times, undisturbed_call

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


class Disturbed(nn.Module):
    """Two layers of 4 ms; in each call another process takes 50 ms in one of them at least."""

    def __init__(self):
        super().__init__()
        self.one, self.other = Sharing([50e-3, 0.0, 50e-3]), Sharing([0.0, 50e-3, 50e-3])

    def forward(self, x):
        return self.other(self.one(x))


class Sharing(nn.Module):
    def __init__(self, waits):
        super().__init__()
        self.waits, self.calls = waits, 0

    def forward(self, x):
        CLOCK.advance(4e-3 + self.waits[self.calls % 3])
        self.calls += 1
        return x


def call_without_others(monkeypatch, share):
    """Return what is found where the thread has a core for a share of each stretch of time."""
    monkeypatch.setattr(layer_times, "SystemClock", CLOCK)
    monkeypatch.setattr(layer_times.time, "thread_time_ns", lambda: round(share * CLOCK.now()))
    model = Disturbed()
    return undisturbed_call(model, lambda: model(torch.ones(1)))


def test_an_undisturbed_call_is_made_of_each_layers_quiet_moment(monkeypatch):
    """No call is quiet as a whole: the fastest takes 58 ms."""
    assert call_without_others(monkeypatch, 1.0) == pytest.approx(8e-3, rel=1e-3)


def test_where_threads_share_a_core_no_moment_is_quiet(monkeypatch):
    assert call_without_others(monkeypatch, 0.3) is None


def test_a_plain_function_has_no_layers_that_add_up():
    assert undisturbed_call(print, lambda: None) is None
