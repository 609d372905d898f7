import threading
import time

import pytest
from tests.support.fakes import FakeClock

from torchgauge.device.load import GpuReading, NoGpu
from torchgauge.measure.machine import system
from torchgauge.measure.machine.system import Flows


def test_cores_are_cpu_time_over_wall_time(monkeypatch):
    clock, spent = FakeClock(), [0.0]
    monkeypatch.setattr(time, "process_time", lambda: spent[0])

    def call():
        clock.advance(0.1)
        spent[0] += 0.15

    working = system.measure(call, duration=1.0, clock=clock)
    assert (working.calls, working.duration) == (10, pytest.approx(1.0))
    assert working.cores.mean == pytest.approx(1.5)


def test_the_shares_of_a_real_machine_are_shares():
    found = system.measure(lambda: time.sleep(0.02), duration=0.1, interval=0.02)
    assert 0 <= found.cores.mean <= found.core_count + 0.5
    assert 0 <= found.machine.mean <= 1
    assert 0 <= found.other <= 1


def test_a_slow_model_is_called_once():
    found = system.measure(lambda: time.sleep(0.2), duration=0.01, interval=0.05)
    assert found.calls == 1
    assert found.duration >= 0.2
    assert len(found.samples) >= 2
    assert [s.time for s in found.samples] == sorted(s.time for s in found.samples)


def test_written_bytes_are_seen(tmp_path):
    def write():
        with (tmp_path / "out").open("wb") as file:
            file.write(b"x" * 2**20)
            file.flush()

    found = system.measure(write, duration=0.05)
    assert found.disk_write is None or found.disk_write > 0
    if found.io_write is not None:  # every byte of every call, whatever the cache does with it
        assert round(found.io_write * found.duration) >= 2**20 * found.calls
        sampled = sum(
            one.io_write * (one.time - before)
            for one, before in zip(
                found.samples, [0, *(s.time for s in found.samples)], strict=False
            )
        )
        assert sampled == pytest.approx(found.io_write * found.duration, rel=0.5)


def test_rates_are_of_what_flowed_between_two_readings():
    before = Flows(disk_read=100, io_read=10, network_sent=7)
    after = Flows(disk_read=300, disk_write=5, io_read=4, network_sent=7)
    assert before.rates(after, 2.0) == {
        "disk_read": 100.0, "disk_write": None, "io_read": 0.0, "io_write": None,
        "network_sent": 0.0, "network_received": None,
    }  # fmt: skip


def test_the_sampler_states_its_cost_and_ends():
    found = system.measure(lambda: time.sleep(0.01), duration=0.2, interval=0.02)
    assert 0 < found.cost < 0.5
    assert not any(t.name == "torchgauge-system" for t in threading.enumerate())


def test_the_sampler_ends_when_the_call_raises():
    def broken():
        raise ValueError

    with pytest.raises(ValueError):
        system.measure(broken)
    assert not any(t.name == "torchgauge-system" for t in threading.enumerate())


@pytest.mark.parametrize(("rest", "samples"), [(0.004, 1), (0.030, 2)])
def test_a_rest_too_short_for_the_kernels_ticks_is_no_sample(monkeypatch, rest, samples):
    times = iter((0.0, 0.05, 0.05 + rest))
    monkeypatch.setattr(system.time, "perf_counter", lambda: next(times))
    sampler = system.Sampler(0.05, NoGpu())
    told = iter((False, True))
    monkeypatch.setattr(sampler._done, "wait", lambda _: next(told))
    sampler.run()
    assert len(sampler.samples) == samples


class Gpu(NoGpu):
    """A GPU that is told apart by its clock, and says nothing of its power."""

    def __init__(self):
        super().__init__()
        self.names = {1: "A GPU"}

    def read(self, index):
        return GpuReading(0.5, 2_000, None, 40.0, 1e9 + index)


def test_the_readings_of_a_gpu_are_kept():
    found = system.measure(lambda: time.sleep(0.01), gpus=Gpu(), duration=0.1, interval=0.02)
    (gpu,) = found.gpus
    assert [one.time for one in gpu.samples] == [one.time for one in found.samples]
    assert {(one.memory, one.power, one.clock) for one in gpu.samples} == {(2_000, None, 1e9 + 1)}


def test_utilisation_is_of_the_time_before_at_first():
    settled = system.GPU_SETTLING
    readings = [
        (at, GpuReading(busy, 2_000, None, 40.0, 1e9))
        for at, busy in ((0.5 * settled, 0.1), (settled, 0.2), (1.5 * settled, 0.5), (2, 0.7))
    ]
    gpu = system._gpu(1, "A GPU", readings)
    assert [one.utilization for one in gpu.samples] == [None, None, 0.5, 0.7]
    assert (gpu.utilization.mean, gpu.utilization.max) == (pytest.approx(0.6), 0.7)
