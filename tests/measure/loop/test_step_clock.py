"""What steps did, by a clock and a counter of waiting for cores that the test moves."""

import gc
import threading

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
    watched.begin(counts=True)
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
    assert times.preempted is None  # of short steps


def test_only_steps_that_count_and_their_thread_are_timed(clock):
    watched = StepClock(clock)
    for number, counts in enumerate((False, True, False, True), 2):
        watched.begin(counts=counts)
        clock.time += number
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


def test_time_without_a_core_is_in_no_kind(clock, monkeypatch):
    delays = iter([0, 0, 3_000_000, 3_000_000])
    watched = StepClock(clock)
    monkeypatch.setattr(watched._delay, "read", lambda: next(delays))
    watched.begin(counts=True)
    clock.time += step_clock.SHORTEST_WITH_DELAY
    watched.end()  # as long as that: from the next on the delay is read
    watched.forget()
    watched.begin(counts=False)
    clock.time += step_clock.SHORTEST_WITH_DELAY
    watched.end()
    watched.begin(counts=True)
    depth = watched.enter("forward")
    clock.time += 5_000_000
    watched.leave(depth)
    watched.end()
    times = watched.times()
    assert ns(times, "forward") == [2_000_000]
    assert times.preempted == (0.003,)
    assert times.durations == (0.005,)


def test_a_long_loop_keeps_every_other_step(clock, monkeypatch):
    monkeypatch.setattr(step_clock, "MOST_STEPS", 4)
    watched = StepClock(clock)
    for _ in range(2, 20):
        watched.begin(counts=True)
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
            watched.begin(counts=True)
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
        watched.begin(counts=True)
        clock.time += 1
        watched.leave(watched.enter("forward"))
        watched.end()
    assert gc.get_count()[0] - before < 20
    assert len(watched.times().steps) == 300


def test_a_collection_between_two_steps_is_in_neither(clock):
    watched = StepClock(clock)
    for _ in range(2):
        watched.begin(counts=True)
        clock.time += 10
        watched.end()
        watched._collected("start", {})
        clock.time += 5
        watched._collected("stop", {})
    assert watched.times().running == pytest.approx((10e-9, 10e-9))
    assert sum(watched.times().collecting) == 0
