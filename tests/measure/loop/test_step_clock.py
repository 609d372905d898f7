"""What steps did, by a clock and a counter of waiting for cores that the test moves."""

import gc
import os
import threading
import time

import pytest
import torch
from tests.support.fakes import FakeClock
from torch import nn
from torch.utils.data import DataLoader, dataloader

from torchgauge.measure.loop import step_clock
from torchgauge.measure.loop.scalar_reads import ScalarReads
from torchgauge.measure.loop.step_clock import StepClock
from torchgauge.records.timeline.loop import STEP_KINDS


@pytest.fixture
def clock():
    gc.disable()
    yield FakeClock()
    gc.enable()


def ns(times, kind):
    return [round(seconds * 1e9) for seconds in times.seconds(kind)]


def test_every_moment_of_a_step_counts_once(clock):
    watched = StepClock(clock)
    watched.begin()
    clock.time += 1  # outside
    forward = watched.enter("forward")
    clock.time += 10
    collecting = watched.enter("collecting")
    clock.time += 100
    watched.leave(collecting)
    clock.time += 20
    watched.enter("backward")  # an exception left it open
    clock.time += 1000
    watched.leave(forward)
    clock.time += 2
    watched.end()
    times = watched.times()
    spent = {kind: ns(times, kind)[0] for kind in STEP_KINDS}
    assert spent == {
        "loading": 0, "forward": 30, "backward": 1000, "optimizer": 0, "waiting": 0,
        "collecting": 100, "outside": 3,
    }  # fmt: skip


def test_only_steps_that_count_and_their_thread_are_timed(clock):
    watched = StepClock(clock)
    for number, counts in enumerate((False, True, False, True), 2):
        watched.begin()
        clock.time += number
        if counts:
            watched.end()
    assert watched.times().steps == (3, 5)
    assert ns(watched.times(), "outside") == [3, 5]
    entered = []
    thread = threading.Thread(target=lambda: entered.append(watched.enter("forward")))
    thread.start()
    thread.join()
    assert entered == [0]
    watched.forget()
    assert watched.times() is None


class Thread:
    """Computes, waits for something and has no core as the test says, in ns."""

    def __init__(self, clock, monkeypatch):
        self.clock, self.computed, self.lost, self.readings = clock, 0, 0, 0
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(time, "thread_time_ns", lambda: self.computed)
        self.watched = StepClock(clock)

    def spend(self, *, computed=0, waited=0, lost=0):
        self.computed += computed
        self.lost += lost
        self.clock.time += computed + waited + lost

    def pread(self, *_):
        self.readings += 1
        return f"0 {self.lost} 0".encode()


def test_time_without_a_core_is_in_no_kind_of_short_steps_too(clock, monkeypatch):
    thread = Thread(clock, monkeypatch)
    watched = thread.watched
    watched.begin()
    thread.spend(lost=7_000_000)  # in a step that does not count
    watched.begin()
    depth = watched.enter("forward")
    thread.spend(computed=100_000, lost=300_000)
    watched.leave(depth)
    depth = watched.enter("loading")
    thread.spend(waited=200_000)
    watched.leave(depth)
    watched.end()
    times = watched.times()
    assert ns(times, "forward") == [100_000]
    assert ns(times, "loading") == [200_000]
    assert times.preempted == pytest.approx((0.0003,))
    assert times.durations == pytest.approx((0.0006,))


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_core_that_is_lost_while_the_clocks_are_read_is_lost_to_one_kind(
    clock, monkeypatch, where
):
    """Between two readings of a span's end the thread may stand still for long."""
    thread = Thread(clock, monkeypatch)
    thread.watched.begin()
    thread.spend(waited=2_000_000)
    asked = thread.watched._delay.new_delay

    def interrupted():
        monkeypatch.setattr(thread.watched._delay, "new_delay", asked)
        if where == "before":
            thread.spend(lost=8_000_000)
        delay = asked()
        if where == "after":
            thread.spend(lost=8_000_000)
        return delay

    monkeypatch.setattr(thread.watched._delay, "new_delay", interrupted)
    depth = thread.watched.enter("forward")
    thread.spend(waited=4_000_000)
    thread.watched.leave(depth)
    thread.watched.end()
    times = thread.watched.times()
    assert (ns(times, "outside"), ns(times, "forward")) == ([2_000_000], [4_000_000])
    assert times.preempted == pytest.approx((0.008,))


def test_the_system_is_asked_for_lost_time_only_where_the_thread_stood_still(clock, monkeypatch):
    thread = Thread(clock, monkeypatch)
    for number in range(10):
        if number == 1:
            before = thread.readings
        thread.watched.begin()
        depth = thread.watched.enter("forward")
        thread.spend(computed=1_000_000, waited=1_000)
        thread.watched.leave(depth)
        thread.watched.end()
    assert thread.readings == before
    assert sum(thread.watched.times().preempted) == 0


def test_lost_time_is_unknown_where_the_system_does_not_tell(clock, monkeypatch):
    watched = StepClock(clock)
    monkeypatch.setattr(watched._delay, "open", lambda: None)
    watched.begin()
    clock.time += 5_000_000
    watched.end()
    assert watched.times().preempted is None
    assert ns(watched.times(), "outside") == [5_000_000]


def test_a_long_loop_keeps_every_other_step(clock, monkeypatch):
    monkeypatch.setattr(step_clock, "MOST_STEPS", 4)
    watched = StepClock(clock)
    for _ in range(2, 20):
        watched.begin()
        watched.end()
    assert watched.times().steps == (4, 8, 12, 16)


class Net(nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()


def test_what_a_training_step_does_is_seen_and_torch_is_left_as_it_was():
    watched = StepClock()
    call, backward = Net.__call__, torch.autograd._engine_run_backward
    following = dataloader._BaseDataLoaderIter.__next__
    model = Net(4, 2)
    optimizer = torch.optim.SGD(model.parameters())
    with watched.watching():
        watched.calls(model)
        watched.calls(model)
        for batch in DataLoader([torch.ones(4)] * 3):
            watched.begin()
            model(batch).sum().backward()
            optimizer.step()
            gc.collect()
            watched.end()
    times = watched.times()
    for kind in ("forward", "backward", "optimizer", "collecting", "outside"):
        assert min(ns(times, kind)) > 0, kind
    assert "__call__" not in vars(Net)
    assert Net.__call__ is call
    assert torch.autograd._engine_run_backward is backward
    assert dataloader._BaseDataLoaderIter.__next__ is following
    assert watched.enter("forward") == 0


def test_reads_of_values_are_counted_by_line():
    reads, names = ScalarReads(), ("item", "tolist", "__bool__", "__float__", "__int__")
    before = {name: getattr(torch.Tensor, name) for name in names}
    with reads.watching():
        for value in torch.ones(6):
            value.item()
        assert float(torch.ones(()))
        torch.optim.Adam([nn.Parameter(torch.ones(1))])
    calls = {(read.call, read.calls): read for read in reads.per_step(2)}
    assert set(calls) == {("item", 3.0), ("__float__", 0.5)}
    assert calls["item", 3.0].file == __file__
    assert calls["item", 3.0].line + 1 == calls["__float__", 0.5].line
    assert before == {name: getattr(torch.Tensor, name) for name in names}
    assert not {"item", "tolist"} & vars(torch.Tensor).keys()


def test_keeps_no_objects_that_make_python_collect_garbage(clock):
    watched = StepClock(clock)
    for number in range(300):
        if number == 100:
            before = gc.get_count()[0]
        watched.begin()
        clock.time += 1
        watched.leave(watched.enter("forward"))
        watched.end()
    assert gc.get_count()[0] - before < 20
    assert len(watched.times().steps) == 300


def test_a_collection_between_two_steps_is_in_neither(clock):
    watched = StepClock(clock)
    for _ in range(2):
        watched.begin()
        clock.time += 10
        watched.end()
        watched._collected("start", {})
        clock.time += 5
        watched._collected("stop", {})
    assert watched.times().running == pytest.approx((10e-9, 10e-9))
    assert sum(watched.times().collecting) == 0
