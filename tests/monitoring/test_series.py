"""Series: what is added is counted, once, in the window in which it came."""

import math
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from tests.support.histograms import histogram_of

from torchgauge.monitoring import series as module
from torchgauge.monitoring.problems import Problems
from torchgauge.monitoring.series import FULL, Series
from torchgauge.records.monitoring.window import Window


def latency_series(labels, begin):
    return Series(Window(series="latency", labels=labels, begin=begin, end=begin), Problems("m"))


def test_values_become_the_histogram_that_records_make_of_them():
    generator = random.Random(5)
    values = [generator.lognormvariate(-5, 2) for _ in range(5000)] + [0.0, 1.0, 2.0, 1e-3]
    series = latency_series({"monitor": "m"}, 10.0)
    for value in values:
        series.add(value)
    window, truth = series.state(20.0), histogram_of(values)
    assert window.histogram.sum == pytest.approx(truth.sum, rel=1e-12)
    assert (window.histogram.counts, window.histogram.offset) == (truth.counts, truth.offset)
    assert (window.histogram.min, window.histogram.max) == (truth.min, truth.max)
    assert (window.histogram.zero_count, window.count) == (1, len(values))
    assert (window.begin, window.end, window.labels) == (10.0, 20.0, {"monitor": "m"})


def test_a_window_has_what_came_since_the_last_one_with_exact_extremes():
    series = latency_series({}, 0.0)
    for value in (0.5, 0.7):
        series.add(value)
    series.fail(ValueError)
    series.add_untimed()
    first = series.close_window(1.0)
    series.add(0.6)
    series.fail("http 500")
    second = series.close_window(2.0)
    assert (first.count, first.errors) == (4, {"ValueError": 1})
    assert (first.histogram.min, first.histogram.max) == (0.5, 0.7)
    assert (second.begin, second.end, second.count) == (1.0, 2.0, 2)
    # Of the whole, neither is an extreme.
    assert (second.histogram.min, second.histogram.max) == (0.6, 0.6)
    assert second.errors == {"http 500": 1}
    assert series.state(3.0).count == 6
    assert series.close_window(3.0).count == 0


def test_eight_threads_lose_nothing():
    series, threads, calls = latency_series({}, 0.0), 8, 2 * FULL + 7
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        workers = [
            threading.Thread(target=lambda: [series.add(1.0) for _ in range(calls)])
            for _ in range(threads)
        ]
        for worker in workers:
            worker.start()
        windows = [series.close_window(float(number)) for number in range(20)]
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(switch)
    windows.append(series.close_window(99.0))
    assert series.state(99.0).histogram.count == threads * calls
    assert sum(window.histogram.count for window in windows) == threads * calls
    assert sum(window.histogram.sum for window in windows) == threads * calls


def test_values_that_cannot_be_are_events_without_a_value():
    series = latency_series({}, 0.0)
    for value in (math.nan, math.inf, math.exp(150), -1e300, 10**400, 1.0):
        series.add(value)
    window = series.state(1.0)
    assert (window.count, window.histogram.count, window.histogram.sum) == (6, 1, 1.0)
    assert (window.histogram.min, window.histogram.max) == (1.0, 1.0)


def test_a_sum_stays_one_that_readers_take(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_SUM", 1e34)
    series = latency_series({}, 0.0)
    for value in (9e29, -9e29):
        for _ in range(9):
            series.values.extend([value] * FULL)
            series.drain_if_full()
    window = series.state(1.0)
    assert abs(window.histogram.sum) < 1e34
    # Three buffers up to the bound, and six down to the other one.
    assert (window.count, window.histogram.count) == (18 * FULL, 9 * FULL)


def test_failures_of_any_type_are_texts():
    series = latency_series({}, 0.0)
    for kind in (503, ValueError, "http 500"):
        series.fail(kind)
    window = series.state(1.0)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(window), type=Window) == window
    assert window.errors == {"503": 1, "ValueError": 1, "http 500": 1}


def test_a_clock_that_is_set_back_leaves_windows_that_readers_take():
    series = latency_series({}, 1000.0)
    series.add(1.0)
    series.close_window(1060.0)
    series.add(1.0)
    windows = series.close_window(400.0), series.state(401.0), series.close_window(460.0)
    assert [(window.begin, window.end) for window in windows] == [
        (400, 400),
        (400, 401),
        (400, 460),
    ]
    assert [window.count for window in windows] == [1, 2, 0]
    assert windows[0].rate is None


def test_who_asks_while_a_buffer_is_emptied_does_not_wait_for_ever():
    """As a signal's handler does that closes a monitor."""
    series, states = latency_series({}, 0.0), []

    def count(buffered):
        states.append(series.close_window(1.0))
        Series._count(series, buffered)

    series._count = count
    series.append(1.0)
    assert series.state(2.0).histogram.count == 1
    assert [state.histogram.count for state in states] == [0]


def test_a_series_takes_at_most_64_kB():
    series = latency_series({}, 0.0)
    for exponent in range(-45, 65):
        series.append(2.0**exponent)
    series.close_window(1.0)
    assert series._counts.nbytes < 28_000
    # The buffer, with as much room as an array grows ahead, and as many as wait between two looks.
    assert series._counts.nbytes + 8 * (FULL + 1000) * 9 / 8 < 64_000


def test_a_thread_whose_turn_does_not_come_goes_on(monkeypatch):
    """A signal interrupted the thread that has it, and its handler waits for the other one."""
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.01)
    series = latency_series({}, 0.0)
    series.append(1.0)
    with series._lock, ThreadPoolExecutor(1) as executor:
        assert executor.submit(series.state, 1.0).result(10).count == 1
