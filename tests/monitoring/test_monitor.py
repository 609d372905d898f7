"""`tg.monitor`: what it records of models, functions and blocks, and how it fails."""

import asyncio
import math
import os
import threading
import time
import warnings

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.monitoring.background import pause
from torchgauge.monitoring.caps import MOST_KINDS, MOST_NAMES, MOST_SERIES
from torchgauge.monitoring.folder import MonitorFolder


def by_series(windows):
    return {(window.series, window.labels.get("layer", "")): window for window in windows}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.blocks(x))


def test_calls_samples_layers_and_errors_are_recorded():
    net, x = Net(), torch.ones(3, 4)
    with tg.monitor(net, name="net", layers=100) as monitor:
        for _ in range(500):
            net(x)
        with pytest.raises(RuntimeError):
            net(torch.ones(3, 5))
        totals = by_series(monitor.totals())
    calls = totals["latency", ""]
    assert (calls.count, calls.errors) == (501, {"RuntimeError": 1})
    assert calls.labels == {"monitor": "net"}
    # One call in a hundred has its layers timed, and its own time is left out.
    timed = totals["layer", "blocks"].count
    assert 1 <= timed == totals["layer", "blocks.0"].count == totals["layer", "head"].count
    assert calls.histogram.count == 500 - timed
    assert totals["layer", "blocks"].histogram.sum >= totals["layer", "blocks.0"].histogram.sum
    batch = totals["batch", ""]
    assert (batch.histogram.min, batch.histogram.max, batch.total) == (3, 3, 1500)
    assert ("tokens", "") not in totals
    assert totals["memory", ""].last > 1e6


def test_one_call_in_so_many_is_timed_and_all_are_counted():
    net, x = Net(), torch.ones(1, 4)
    with tg.monitor(net, every=10) as monitor:
        for _ in range(3000):
            net(x)
        with pytest.raises(RuntimeError):
            net(torch.ones(3, 5))
        calls = by_series(monitor.totals())["latency", ""]
    assert (calls.count, calls.labels) == (3001, {"monitor": "Net"})
    assert calls.errors == {"RuntimeError": 1}
    assert 200 < calls.histogram.count < 400
    assert calls.total == pytest.approx(calls.histogram.mean * 3000)


@pytest.mark.parametrize("counted", [False, True])
def test_tokens_are_those_of_input_ids_or_counted_by_the_caller(counted):
    embed = nn.Embedding(10, 2)

    def tokens(args, kwargs, output):
        return int((args[0] != 0).sum())

    with tg.monitor(embed, tokens=tokens if counted else None) as monitor:
        for _ in range(7):
            embed(torch.tensor([[1, 2, 0], [3, 0, 0]]))
        window = by_series(monitor.totals())["tokens", ""]
    assert window.total == (21 if counted else 42)
    assert window.histogram.count == 7 if counted else window.count == 7


def test_functions_coroutines_and_streams_are_timed_to_their_end():
    monitor = tg.monitor(name="program")

    @monitor
    def plain(number):
        """Double it."""
        return 2 * number

    @monitor
    async def coroutine():
        await asyncio.sleep(0.02)

    @monitor
    def stream():
        yield 1
        time.sleep(0.02)
        yield 2

    @monitor
    async def asynchronous_stream():
        yield 1
        await asyncio.sleep(0.02)
        raise ValueError

    async def consume():
        async for _ in asynchronous_stream():
            pass

    assert (plain(3), plain.__doc__) == (6, "Double it.")
    asyncio.run(coroutine())
    assert list(stream()) == [1, 2]
    with pytest.raises(ValueError):
        asyncio.run(consume())
    with monitor.time("read", source="disk"):
        pass
    windows = {
        (w.series, w.labels.get("function", "").rpartition(".")[2]): w for w in monitor.totals()
    }
    assert windows["latency", "plain"].count == 1
    assert windows["latency", "coroutine"].histogram.min > 0.019
    assert windows["latency", "stream"].histogram.min > 0.019
    assert windows["first_byte", "stream"].histogram.max < 0.019
    assert windows["latency", "asynchronous_stream"].errors == {"ValueError": 1}
    assert windows["read", ""].labels == {"monitor": "program", "source": "disk"}


def test_threads_lose_nothing():
    net, x = nn.Identity(), torch.ones(1)
    for every in (1, 7):
        with tg.monitor(net, every=every, layers=50) as monitor:
            threads = [
                threading.Thread(target=lambda: [net(x) for _ in range(2500)]) for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert by_series(monitor.totals())["latency", ""].count == 20_000


def test_windows_end_at_multiples_of_their_length_and_are_handed_on():
    received = []
    net = Net()
    monitor = tg.monitor(net, interval=1000.0, window=3600.0, on_windows=received.append)
    net(torch.ones(1, 4))
    while monitor._file is None:  # the thread's tick at the real time, the only one
        time.sleep(0.001)
    monitor.tick(monitor._window_end - 1)
    assert monitor._window_end % 3600 == 0
    monitor.tick(monitor._window_end + 1)
    net(torch.ones(1, 4))
    monitor.close()
    assert [by_series(windows)["latency", ""].count for windows in received] == [1, 1]


def test_flush_writes_and_hands_on_all_and_the_monitor_goes_on():
    received = []
    with tg.monitor(
        name="m", interval=1000.0, window=3600.0, on_windows=received.append
    ) as monitor:
        while monitor._file is None:  # the thread's tick, the only one
            time.sleep(0.001)
        for number in (1, 2, 3):
            monitor.add("read", 1.0)
            monitor.flush()
            assert [w.count for w in MonitorFolder().totals() if w.series == "read"] == [number]
            assert sum(by_series(windows)["read", ""].count for windows in received) == number
    assert monitor.status == ()


@pytest.mark.parametrize(
    ("interval", "taken", "expected"), [(1.0, 0.0, 0.9), (1.0, 0.1, 0.8), (1.0, 0.7, 0.7)]
)
def test_the_next_write_ends_within_the_interval(interval, taken, expected):
    assert pause(interval, taken) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:Of the folder:RuntimeWarning")
def test_the_folder_has_what_closed_monitors_recorded(folder):
    for _ in range(2):
        net = Net()
        with tg.monitor(net, name="a/b") as monitor:
            net(torch.ones(1, 4))
            monitor.tick(time.time())
    (folder / "foreign.monitor").write_bytes(b"x")
    reader = MonitorFolder()
    assert [state.alive for state in reader.states()] == [False, False]
    assert reader.unreadable == ("foreign.monitor",)
    assert by_series(reader.totals("a/b"))["latency", ""].count == 2
    assert reader.totals("other") == []
    # Ended processes have no memory.
    assert ("memory", "") not in by_series(reader.totals())
    assert by_series(reader.windows())["latency", ""].count == 2
    with tg.monitor(net, name="a/b") as monitor:
        net(torch.ones(1, 4))
        monitor.tick(time.time())
        assert reader.remove_ended(0.0) == 0
        assert by_series(reader.windows())["latency", ""].count == 1
        assert by_series(monitor.totals_of_processes())["latency", ""].count == 3
        assert reader.windows("other") == []
        assert reader.remove_ended(time.time()) == 2
        assert by_series(monitor.totals_of_processes())["latency", ""].count == 1
        assert len(list(folder.iterdir())) == 2


def test_a_monitor_that_fails_says_so_once_and_the_model_goes_on(folder, monkeypatch):
    folder.write_text("a file is where the folder should be")

    def refuse(windows):
        raise OSError(28, "No space left on device")

    net, x = Net(), torch.ones(1, 4)
    expected = net(x)

    def tokens(args, kwargs, output):
        raise ZeroDivisionError

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monitor = tg.monitor(net, name="m", tokens=tokens, interval=0.01, on_windows=refuse)
        for _ in range(3):
            assert torch.equal(net(x), expected)
            monitor.tick(time.time())
        monitor.close_windows(time.time())
        monitor.close()
    texts = [str(warning.message) for warning in caught]
    problems = {problem.part: problem for problem in monitor.status}
    assert set(problems) == {"folder", "sizes", "function"}
    for part in problems:
        assert sum(f"goes on without its {part}:" in text for text in texts) == 1
    assert problems["folder"].times >= 3
    assert problems["sizes"].message == "ZeroDivisionError"
    assert by_series(monitor.totals())["latency", ""].count == 3


@pytest.mark.filterwarnings("ignore:The monitor:RuntimeWarning")
def test_a_series_that_fails_ends_neither_the_thread_nor_the_program(monkeypatch):
    monitor = tg.monitor(name="m", interval=0.01, window=0.01)
    monitor.add("read", 1.0)

    def close_window(now):
        raise ZeroDivisionError

    monkeypatch.setattr(monitor.series("read"), "close_window", close_window)
    deadline = time.monotonic() + 10
    while not monitor.status and time.monotonic() < deadline:
        time.sleep(0.01)
    other = tg.monitor(name="other", interval=0.01)
    while not MonitorFolder().totals("other") and time.monotonic() < deadline:
        other.add("read", 1.0)
        time.sleep(0.01)
    assert MonitorFolder().totals("other")
    monitor.close()
    assert [(problem.part, problem.message) for problem in monitor.status] == [
        ("windows", "ZeroDivisionError")
    ]


def test_a_value_that_cannot_be_leaves_the_rest_of_the_file(folder):
    with tg.monitor(name="m") as monitor:
        monitor.add("perplexity", math.exp(150), unit="")
        monitor.add("read", 1.0, rank=3)
        monitor.tick(time.time())
        windows = {window.series: window for window in MonitorFolder().totals()}
    assert windows["read"].labels["rank"] == "3"
    assert (windows["perplexity"].count, windows["perplexity"].histogram.count) == (1, 0)
    assert monitor.status == ()


def test_a_clock_that_is_set_back_begins_a_window(folder):
    received = []
    monitor = tg.monitor(name="m", window=3600.0, on_windows=received.append)
    monitor.add("read", 1.0)
    monitor.tick(time.time() - 86_400)
    monitor.close()
    assert MonitorFolder().unreadable == ()
    windows = [window for windows in received for window in windows if window.series == "read"]
    assert [window.rate for window in windows] == [None]


@pytest.mark.filterwarnings("ignore:The monitor:RuntimeWarning")
def test_what_works_again_is_solved(folder):
    folder.write_text("a file is where the folder should be")
    net = Net()
    monitor = tg.monitor(net, interval=1000.0, window=1000.0)
    net(torch.ones(1, 4))
    monitor.tick(time.time())
    folder.unlink()
    monitor.tick(time.time())
    assert [(problem.part, problem.solved) for problem in monitor.status] == [("folder", True)]
    assert by_series(MonitorFolder().totals())["latency", ""].count == 1


def test_warnings_as_errors_do_not_reach_the_call(folder):
    folder.write_text("")
    net = Net()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tg.monitor(net, tokens=lambda *_: 1 / 0) as monitor:
            net(torch.ones(1, 4))
    assert {problem.part for problem in monitor.status} == {"folder", "sizes"}


@pytest.mark.filterwarnings("ignore:The monitor:RuntimeWarning")
def test_texts_of_any_length_and_units_that_are_none_leave_a_file_that_is_read(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tg.monitor(name="m", folder=tmp_path, labels={"build": "b" * 10**6}) as monitor:
            for number in range(3):
                monitor.add(f"read {number} " + "x" * 10**6, 1.0)
                monitor.add("read", 1.0, user=f"{number}" + "u" * 10**6)
                monitor.fail("read", f"kind {number}" + "k" * 10**6, user="a")
                monitor.add("wait", 5.0, "ms")
                monitor.add("read", 1.0, user=number)
    totals = MonitorFolder(tmp_path).totals()
    events = [w for w in totals if w.last is None]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 100_000
    assert {w.labels["build"] for w in events} == {"other"}
    by_key = {(w.series, w.labels.get("user")): w for w in events}
    assert set(by_key) == {
        *(("read", user) for user in ("other", "a", "0", "1", "2")),
        *(("other", None), ("wait", None)),
    }
    assert (by_key["other", None].count, by_key["read", "other"].count) == (3, 3)
    assert by_key["read", "a"].errors == {"other": 3}
    assert (by_key["wait", None].unit, by_key["wait", None].count) == ("", 3)
    assert {problem.part for problem in monitor.status} == {
        *("further series", "further kinds of errors", "units")
    }
    assert len(caught) == 3


@pytest.mark.filterwarnings("ignore:The monitor:RuntimeWarning")
def test_labels_without_end_share_a_series():
    monitor = tg.monitor(name="m")
    for number in range(MOST_SERIES + 50):
        monitor.add("read", 1.0, user=str(number))
    windows = by_series_and_user(monitor)
    assert len(windows) <= MOST_SERIES + 1
    assert windows["other"].count >= 50


def test_names_and_kinds_of_errors_without_end_are_capped_and_told_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tg.monitor(name="m", interval=1e3, window=1e4) as monitor:
            for number in range(2000):
                monitor.add(f"read {number}", 1.0)
                monitor.add(f"size {number}", 2.0, "B", **{f"label {number}": "x"})
                monitor.fail("step", f"kind {number}")
            monitor.tick(time.time())  # readings of memory are none of the others
            totals = [window for window in monitor.totals() if window.last is None]
        read_back = MonitorFolder().totals()
    assert len(totals) <= MOST_SERIES + MOST_NAMES + 2
    names = [window.series.partition(" ")[0] for window in totals]
    sums = {
        name: sum(w.histogram.sum for w, other in zip(totals, names, strict=True) if other == name)
        for name in ("read", "size", "other")
    }
    assert sum(sums.values()) == 2000 * 1.0 + 2000 * 2.0  # nothing is lost
    (times,) = [window for window in totals if window.series == "other s"]
    (sizes,) = [window for window in totals if window.series == "other B"]
    assert times.histogram.max == 1.0
    assert sizes.histogram.max == 2.0
    (steps,) = [window for window in read_back if window.series == "step"]
    assert (len(steps.errors), steps.errors["kind 0"]) == (MOST_KINDS + 1, 1)
    assert (steps.failed, steps.errors["other"]) == (2000, 2000 - MOST_KINDS)
    texts = [str(warning.message) for warning in caught]
    assert sorted(text.partition(":")[0].partition(" its ")[2] for text in texts) == [
        "further kinds of errors",
        "further series",
    ]


def by_series_and_user(monitor):
    return {w.labels["user"]: w for w in monitor.totals() if w.series == "read"}


def test_a_forked_process_begins_again():
    net, x = Net(), torch.ones(1, 4)
    with tg.monitor(net, interval=0.05, window=100.0) as monitor:
        for _ in range(3):
            net(x)
        child = os.fork()
        if not child:
            for _ in range(5):
                net(x)
            time.sleep(0.2)  # the thread of the child writes
            os._exit(0)
        os.waitpid(child, 0)
        net(x)
        assert by_series(monitor.totals())["latency", ""].count == 4
        assert by_series(monitor.totals_of_processes())["latency", ""].count == 9
    states = MonitorFolder().states()
    assert len({state.process for state in states}) == len(states) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"name": ""},
        {"name": "a\n"},
        {"name": "m", "every": 0},
        {"name": "m", "every": 1.5},
        {"name": "m", "layers": -1},
        {"name": "m", "interval": 0},
        {"name": "m", "window": float("nan")},
        {"name": "m", "buckets": [0.1, 0.1]},
        {"name": "m", "buckets": [0.0, 0.1]},
        {"name": "m", "buckets": [0.1, float("nan")]},
        {"name": "m", "buckets": [0.1, float("inf")]},
        {"name": "m", "buckets": range(1, 1000)},
    ],
)
def test_options_that_cannot_be_are_refused(arguments):
    with pytest.raises(tg.InputError) as error:
        tg.monitor(**arguments)
    assert error.value.id == "monitor-option"


def bounds(monitor, **values):
    """Return the bounds of each series, as the reader of its file sees them."""
    for series, unit in values.items():
        monitor.add(series, 1.0, unit)
    monitor.flush()
    windows = MonitorFolder(monitor.options.folder).totals()
    return {window.series: window.buckets for window in windows if window.last is None}


def test_buckets_are_in_the_file_for_whoever_shows_it(tmp_path):
    every_time = {"name": "a", "folder": tmp_path / "a", "buckets": [0.1, 0.2]}
    with tg.monitor(**every_time) as monitor:
        assert bounds(monitor, latency="s", tokens="") == {"latency": (0.1, 0.2), "tokens": ()}


def test_limits_of_alert_rules_are_buckets(tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[objective]]\nmonitor = "ap*"\nshare = "99%"\nunder = "123ms"\n'
        '[[threshold]]\nmetric = "monitor_request_p99"\nabove = "2.5s"\n'
    )
    made = {"buckets": [0.1, 0.2], "alerts": rules}
    for name, latency in (("api", (0.1, 0.123, 0.2)), ("batch", (0.1, 0.2))):
        with tg.monitor(name=name, folder=tmp_path / name, **made) as monitor:
            assert bounds(monitor, latency="s", request="s") == {
                "latency": latency,
                "request": (0.1, 0.2, 2.5),
            }


def test_a_function_is_to_be_decorated():
    with pytest.raises(tg.InputError) as error:
        tg.monitor(len)
    assert error.value.id == "monitor-target"
