"""What interrupts a loop's steps, with a clock and a collector that the test moves."""

import gc

import pytest
from tests.support.fakes import FakeClock

from torchgauge.measure.loop import interruptions
from torchgauge.measure.loop.interruptions import Interruptions


@pytest.fixture
def collect():
    """Return a function that has a collection take ns, as the collector tells of it."""

    def collect(clock, length):
        for phase in ("start", "stop"):
            for callback in gc.callbacks:
                callback(phase, {"generation": 2})
            clock.time += length if phase == "start" else 0

    gc.disable()
    yield collect
    gc.enable()


def test_collections_count_in_steps_that_count(collect):
    clock = FakeClock()
    watched = Interruptions(clock)
    before = list(gc.callbacks)
    with watched.watching():
        collect(clock, 7)  # before any step
        for counts in (True, False, True):
            watched.begin()
            clock.time += 100
            collect(clock, 30)
            collect(clock, 10)
            if counts:
                watched.end()
            collect(clock, 500)  # between steps: of the instruments
    assert gc.callbacks == before
    (delay,) = watched.delays()
    assert (delay.cause, delay.calls, delay.steps) == ("garbage collection", 4, 2)
    assert delay.time == pytest.approx(80e-9)
    assert delay.longest == pytest.approx(30e-9)
    assert delay.duration == pytest.approx(280e-9)
    watched.forget()
    assert watched.delays() == ()


def test_compilation_is_what_dynamo_counts_meanwhile(monkeypatch, collect):
    counters = [(3, 1000)]
    monkeypatch.setattr(interruptions, "_compiled", lambda: counters[0])
    clock = FakeClock()
    watched = Interruptions(clock)
    for compiled in ((4, 1600), (4, 1600), (6, 1900)):
        watched.begin()
        clock.time += 1000
        counters[0] = compiled
        watched.end()
    (delay,) = watched.delays()
    assert (delay.cause, delay.calls, delay.steps) == ("compilation", 3, 3)
    assert delay.time == pytest.approx(900e-9)
    assert delay.longest == pytest.approx(600e-9)
