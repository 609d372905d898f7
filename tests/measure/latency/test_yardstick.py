"""Reference work between the calls: when it runs, what it leaves alone, what a run holds of it."""

import mmap
import os
import signal
import time

import pytest
import torch
from tests.support.fakes import FakeClock
from tests.support.sampled_machine import MS, Machine, steady
from torch import nn

from torchgauge.clock import SystemClock
from torchgauge.device.select import open_device
from torchgauge.measure.latency import latency
from torchgauge.measure.latency.latency import LEAST_PAUSE, PACE, Yardstick
from torchgauge.measure.latency.latency_options import LatencyOptions, SamplingPlan
from torchgauge.targets.builds.source import Source

HOST_KINDS = {"matmul", "copy", "threads", "python", "dispatch"}


class Between:
    """Takes 2 ms at a time, and is due every 95 ms."""

    def __init__(self, machine):
        self.machine = machine
        self.due = 0
        self.began = []

    def run(self):
        assert not self.machine.inside
        self.began.append((self.machine.calls, self.machine.clock.time))
        self.machine.clock.time += 2 * MS
        self.due = self.machine.clock.time + 95 * MS


def test_work_between_the_calls_is_in_no_sample_and_waits_until_it_is_due():
    machine = Machine(steady())
    between = Between(machine)
    plan = SamplingPlan(warmup=0, iterations=30)
    run = machine.sample(plan, between=between)
    alone = Machine(steady()).sample(plan)
    assert run.samples == alone.samples
    # Begun at 45 ms: after the first timed call, then after each ten more of 10 ms. Never last.
    assert [calls for calls, _ in between.began] == [2, 12, 22]
    assert [at for _, at in between.began] == [55 * MS, 157 * MS, 259 * MS]


class TickingClock:
    """Moves by `tick` each time it is read."""

    def __init__(self, tick):
        self.time, self.tick = 0, tick

    def now(self):
        self.time += self.tick
        return self.time


@pytest.mark.parametrize("tick", [1_000, 10 * MS])
def test_a_round_waits_for_many_times_its_own_duration(tick):
    clock = TickingClock(tick)
    piece = Yardstick(clock, open_device("cpu"))
    assert piece.due == 0
    piece.run()
    # Two readings to a piece, and one at either end: eleven ticks apart.
    assert piece.due == clock.time + max(PACE * 11 * tick, LEAST_PAUSE)
    for _ in range(3):
        piece.run()
    times = piece.medians()
    for ratio in ("waiting", "faulting"):
        times.pop(ratio, None)
    assert times == dict.fromkeys(HOST_KINDS, pytest.approx(tick / 1e9))


def test_before_any_round_nothing_is_known():
    assert Yardstick(TickingClock(1), open_device("cpu")).medians() == {}


def test_waiting_is_what_the_system_tells_of_this_thread(tmp_path, monkeypatch):
    file = tmp_path / "schedstat"
    monkeypatch.setattr(latency, "SCHEDULED", file)
    file.write_text("1000 500 3\n")
    piece = Yardstick(TickingClock(1), open_device("cpu"))
    piece.run()
    file.write_text("3000 1500 9\n")
    assert piece.medians()["waiting"] == pytest.approx(1.5)
    for text in ("1000 500 3", "nothing", ""):
        file.write_text(text)
        assert set(piece.medians()) == HOST_KINDS
    file.unlink()
    assert set(piece.medians()) == HOST_KINDS


@pytest.mark.skipif(latency.resource is None, reason="page faults are not counted here")
def test_faulting_is_what_the_page_faults_of_a_call_take_at_a_microsecond_each(monkeypatch):
    faults = iter([0, 1000, 1500, 1500, 1700, 10**6, 10**6 + 300, 10**6 + 300])
    monkeypatch.setattr(latency, "_page_faults", lambda: next(faults))
    clock = TickingClock(0)
    piece = Yardstick(clock, open_device("cpu"))
    for pause in (0, 1, 1, 1):  # 500, 200 and 300 page faults in a millisecond each
        clock.time += pause * MS
        assert "faulting" not in piece.medians()
        piece.run()
    assert piece.medians(call=0.002)["faulting"] == pytest.approx(300 * 2 * 1e-6)


@pytest.mark.skipif(latency.resource is None, reason="page faults are not counted here")
def test_page_faults_of_fresh_memory_are_counted():
    piece = Yardstick(SystemClock(), open_device("cpu"))
    pauses = []
    for _ in range(4):
        piece.run()
        began = time.perf_counter()
        held = mmap.mmap(-1, 4096 * 2000)
        for page in range(2000):
            held[4096 * page] = 1
        held.close()
        pauses.append(time.perf_counter() - began)
    # All that was done between two rounds was one call, which took as long as it did beside others.
    assert piece.medians(call=max(pauses))["faulting"] > 0.9 * 2000 * latency.PAGE_FAULT


def test_it_leaves_the_users_state_and_gradients_alone():
    state = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16):
            piece = Yardstick(TickingClock(1), open_device("cpu"))
            with torch.inference_mode():
                piece.run()
            piece.run()
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_run_holds_the_medians_and_its_first_call_comes_before_any_work(monkeypatch):
    order = []
    rounds = Yardstick.run
    monkeypatch.setattr(Yardstick, "run", lambda piece: (order.append("round"), rounds(piece))[1])

    class Model(nn.Module):
        def forward(self, x):
            order.append("call")
            return x + 1

    placement = Source.of_object(Model(), torch.ones(2)).open()
    run = latency.measure(placement, LatencyOptions(warmup=0, iterations=20))
    assert set(run.yardstick) - {"waiting", "faulting"} == HOST_KINDS
    assert all(seconds > 0 for seconds in run.yardstick.values())
    assert order[:3] == ["call", "call", "round"]
    faked = latency.measure(placement, LatencyOptions(warmup=0, iterations=20), clock=FakeClock())
    assert faked.yardstick == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_process_that_the_call_forked_ends_instead_of_waiting_for_threads_it_has_not():
    reference = Yardstick(SystemClock(), open_device("cpu"))
    reference.run()
    child = os.fork()
    if child == 0:
        try:
            reference.run()
        except SystemExit as end:
            os._exit(40 + end.code)
        finally:
            os._exit(1)
    for _ in range(200):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the forked process hangs")
    assert os.waitstatus_to_exitcode(status) == 40
