"""What a server's processes use: sums, rates and the limit, from readings made by hand."""

import os

import pytest
from tests.support.servers.running import running

from torchgauge.device.process_counters import ProcessReading, listening, read_process
from torchgauge.serving import server_use as uses
from torchgauge.serving.server_use import ServerWatch, _Moment, server_use


def reading(cpu, memory=100, *, waiting=0.0, ran=None, threads=None):
    ran = cpu if ran is None else ran
    return ProcessReading(cpu, memory, int(cpu * 1000), 0, waiting, ran, threads or {})


def test_readings_of_several_processes_are_added_up():
    moments = [
        _Moment(10.0, {1: reading(5.0), 2: reading(1.0)}, (0, 0), None, None),
        _Moment(11.0, {1: reading(5.5), 2: reading(2.0, waiting=0.5)}, (100, 50), None, None),
        # A process that came has no rate yet, and one that ended none any longer.
        _Moment(13.0, {2: reading(4.0, waiting=0.5), 3: reading(9.0)}, (100, 250), None, None),
    ]
    use = server_use(moments, begin=10.0)
    assert use.time == (1.0, 3.0)
    assert use.cpu == pytest.approx((1.5, 1.0))
    assert use.memory == (200, 200)
    assert use.read == pytest.approx((1500.0, 1000.0))
    assert use.sent == (100.0, 0.0)
    assert use.received == (50.0, 100.0)
    # Ready and without a core for 0.5 of 2.0 s in which they could run.
    assert use.waiting == pytest.approx((0.25, 0.0))
    assert use.processes == 2
    assert (use.gpu, use.gpu_memory) == ((), ())


@pytest.mark.parametrize(("cores", "name"), [(1, "cpu"), (8, "one core")])
def test_the_resource_at_its_limit_is_named(monkeypatch, cores, name):
    monkeypatch.setattr(uses, "cores_of", lambda number: cores)
    moments = [_Moment(t, {1: reading(0.95 * t)}, (0, 0), None, None) for t in (0.0, 1.0, 2.0)]
    assert server_use(moments, begin=0.0).first_saturated == name


@pytest.mark.parametrize(
    ("busy", "name"), [((0.97, 0.9), "one core"), ((0.6, 0.6, 0.6), ""), ((0.4,), "")]
)
def test_a_thread_that_takes_one_core_is_at_a_limit(monkeypatch, busy, name):
    """Of 16 cores one is used up, which the share of all of them hides."""
    monkeypatch.setattr(uses, "cores_of", lambda number: 16)
    moments = []
    for t in (0.0, 1.0, 2.0):
        threads = {str(number): share * t for number, share in enumerate(busy)}
        moments.append(_Moment(t, {1: reading(sum(busy) * t, threads=threads)}, (0, 0), None, None))
    use = server_use(moments, begin=0.0)
    assert use.first_saturated == name
    assert use.busiest == pytest.approx((max(busy),) * 2)


def test_readings_before_the_level_are_left_out():
    moments = [_Moment(float(t), {1: reading(t)}, (None, None), None, None) for t in range(4)]
    use = server_use(moments, begin=2.0)
    assert use.time == (1.0,)
    assert (use.sent, use.received) == ((), ())
    assert server_use(moments[:1], begin=0.0) is None


def test_a_process_is_found_by_its_port_and_read():
    with running("fifo_server") as server:
        numbers = listening(server.port)
        assert server.process.pid in numbers
        assert read_process(server.process.pid).memory > 2**20
    assert read_process(server.process.pid) is None
    assert read_process(os.getpid()).cpu > 0


def test_nothing_is_read_without_processes():
    with ServerWatch(()) as watch:
        watch.start()
        assert watch.use(1.0) is None
