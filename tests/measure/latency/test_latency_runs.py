"""One latency in several processes by default: how many, for how long, and what may go wrong."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest
import torch
from tests.support.fakes import FakeClock
from torch import nn

import torchgauge as tg
from torchgauge.errors import MeasurementError
from torchgauge.measure.latency import latency_runs as module
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.latency.latency_runs import LatencyRuns, latency_runs
from torchgauge.measure.processes.fork_server import ForkServer
from torchgauge.progress import Silent
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.targets.builds.source import Source

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


def children():
    return psutil.Process().children(recursive=True)


@pytest.fixture(autouse=True)
def _no_child_is_left():
    before = children()
    yield
    assert [child for child in children() if child not in before] == []


def run(median=1e-3, stop="short run done"):
    return LatencyRun(
        samples=(median,) * 3, warmup=0, steady=True, first_call=median, median=median,
        interval=None, autocorrelation=1.0, stop=stop,
    )  # fmt: skip


@pytest.fixture
def timed(monkeypatch):
    """Return what makes runs whose processes take as long as they are told to, by a fake clock."""
    clock = FakeClock()
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now() / 1e9)

    def make(here, fresh, **options):
        def measure(*_args, **_options):
            clock.advance(here)
            return run()

        def fresh_run(_self):
            seconds = fresh.pop(0)
            if isinstance(seconds, BaseException):
                raise seconds
            clock.advance(seconds)
            return run()

        monkeypatch.setattr(module.probe, "measure", measure)
        monkeypatch.setattr(module.LatencyRuns, "_fresh_run", fresh_run)
        source = Source.of_object(nn.Linear(2, 2), torch.ones(1, 2))
        runs = LatencyRuns(source, LatencyOptions(**options), Silent())
        runs.begin(source.open())
        return runs

    return make


def test_processes_are_added_while_the_next_one_fits_into_the_budget(timed):
    runs = timed(0.5, [1.0] * 20, budget=6.0)
    runs.measure_more()
    assert len(runs.runs) == 6  # 0.5 s and five of 1 s; a sixth would end at 6.5 s


def test_a_share_of_the_budget_leaves_the_rest_for_later(timed):
    runs = timed(0.5, [1.0] * 20, budget=6.0)
    runs.measure_more(0.5)
    assert len(runs.runs) == 3
    assert runs.unfinished
    runs.measure_more()
    assert len(runs.runs) == 6


def test_three_processes_are_measured_though_they_overdraw_the_budget(timed):
    runs = timed(2.0, [4.0] * 9, budget=6.0)
    runs.measure_more()
    assert len(runs.runs) == 3
    slow = timed(2.0, [20.0] * 9, budget=6.0)
    slow.measure_more()
    assert len(slow.runs) == 2  # nobody waits for ten times the budget


def test_no_more_than_twenty_processes(timed):
    runs = timed(0.1, [0.1] * 90, budget=100.0)
    runs.measure_more()
    assert len(runs.runs) == 20


def test_a_process_that_fails_ends_it_and_loses_nothing(timed):
    killed = MeasurementError("A measuring process was killed by SIGKILL.", id="child-killed")
    runs = timed(0.5, [1.0, killed, 1.0])
    runs.measure_more()
    assert len(runs.runs) == 2
    assert [(one.id, one.failed, one.message[:10]) for one in runs.failures] == [
        ("child-killed", True, "Process 3:")
    ]
    assert not runs.unfinished


def test_a_disk_that_is_full_meanwhile_loses_no_run(timed):
    runs = timed(0.5, [1.0, OSError(28, "No space left on device"), 1.0])
    runs.measure_more()
    assert len(runs.runs) == 2
    assert [(one.id, one.failed) for one in runs.failures] == [("output-unwritable", True)]
    assert "No space left" in runs.failures[0].cause


def test_ctrl_c_ends_it_and_marks_the_last_run(timed):
    runs = timed(0.5, [1.0, KeyboardInterrupt(), 1.0])
    runs.measure_more()
    assert [one.stop for one in runs.runs] == ["short run done", "interrupted"]
    assert not runs.unfinished


def test_iterations_are_taken_in_this_process():
    latency = tg.measure_latency(nn.Linear(2, 2), torch.ones(1, 2), iterations=12)
    assert [len(one.steady_samples) for one in latency.processes] == [12]
    assert latency.interval_scope == "process"


@pytest.mark.thorough
def test_what_cannot_travel_is_timed_here_alone_and_says_so():
    lock = threading.Lock()
    latency = tg.measure_latency(lambda: lock.locked(), budget=0.3)
    assert len(latency.processes) == 1
    assert latency.interval_scope == "process"
    (warning,) = [one for one in latency.warnings if one.id == "one-process"]
    assert "lock" in warning.message
    assert not warning.failed


@pytest.mark.thorough
def test_a_model_too_large_to_be_doubled_is_timed_here_alone(monkeypatch):
    monkeypatch.setattr(module, "MOST_CARRIED", 100)
    latency = tg.measure_latency(nn.Linear(64, 64), torch.ones(1, 64), budget=0.3)
    assert len(latency.processes) == 1
    (warning,) = [one for one in latency.warnings if one.id == "one-process"]
    assert "16.64 kB" in warning.message


@pytest.mark.slow
@linux
def test_forked_processes_build_the_model_anew_and_leave_this_one_alone(tmp_path):
    pids = tmp_path / "pids"
    model, factor = nn.Linear(8, 8), torch.ones(8)

    def call(x):
        known = set(pids.read_text().split()) if pids.exists() else set()
        if str(os.getpid()) not in known:
            pids.write_text(" ".join([*known, str(os.getpid())]))
        time.sleep(0.02)
        return model(x) * factor

    threads = torch.get_num_threads()
    latency = tg.measure_latency(call, torch.ones(1, 8), budget=8.0)
    seen = pids.read_text().split()
    assert len(seen) == len(latency.processes) >= 3
    assert str(os.getpid()) in seen
    assert all(one.median >= 0.02 for one in latency.processes)
    assert latency.interval_scope in ("runs", "calibrated")
    assert torch.get_num_threads() == threads


@pytest.mark.slow
@linux
def test_a_forked_process_that_dies_leaves_the_first_run(tmp_path):
    here = os.getpid()

    def call():
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)

    latency = tg.measure_latency(call, budget=8.0)
    assert len(latency.processes) == 1
    assert latency.interval_scope == "process"
    (warning,) = [one for one in latency.warnings if one.failed]
    assert warning.id == "child-killed"
    assert warning.message.startswith("Process 2: ")


@pytest.mark.slow
@linux
def test_what_a_forked_process_raises_arrives_with_its_text():
    here = os.getpid()

    def call():
        if os.getpid() != here:
            raise RuntimeError("only elsewhere")
        time.sleep(0.02)

    latency = tg.measure_latency(call, budget=8.0)
    (warning,) = [one for one in latency.warnings if one.failed]
    assert warning.id == "forward-raised"
    assert "only elsewhere" in warning.cause


@pytest.mark.slow
@linux
def test_a_server_that_is_killed_costs_no_run():
    source = Source.of_object(time.sleep, 0.02)
    with latency_runs(source, LatencyOptions(budget=30.0), Silent()) as runs:
        runs.begin(source.open())
        (server,) = children()
        server.kill()
        runs.measure_more()
        assert len(runs.runs) == 1
        assert [one.id for one in runs.failures] == ["child-failed"]


@pytest.mark.slow
@linux
def test_an_interrupt_brings_back_what_the_forked_process_has(tmp_path):
    started, here = tmp_path / "started", os.getpid()

    def slow():
        if os.getpid() != here:
            started.touch()
        time.sleep(0.05)

    def interrupt():
        while not started.exists():
            time.sleep(0.02)
        time.sleep(0.2)
        os.kill(here, signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    latency = tg.measure_latency(slow, budget=60.0)
    thread.join()
    assert latency.stop == "interrupted"
    assert len(latency.processes) == 2
    assert all(one.samples for one in latency.processes)


@pytest.mark.slow
@linux
def test_a_child_that_takes_too_long_is_killed(tmp_path):
    server = ForkServer()
    try:
        assert server.ready(120.0)
        folder = tmp_path / "one"
        folder.mkdir()
        os.mkfifo(folder / "request")  # it waits for what nobody writes
        end = server.run(folder, 0.5)
    finally:
        server.close()
    assert end.late
    assert end.code == -signal.SIGKILL


@pytest.mark.slow
@linux
def test_no_process_outlives_a_killed_parent(tmp_path):
    pid = tmp_path / "pid"
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, pathlib, time
        import torchgauge as tg

        here, pid = os.getpid(), pathlib.Path({str(pid)!r})

        def slow():
            if os.getpid() != here and not pid.exists():
                part = pid.with_suffix(".part")
                part.write_text(str(os.getpid()))
                part.rename(pid)
            time.sleep(0.02)

        tg.measure_latency(slow, budget=600.0)
        """)
    )
    own = {**os.environ, "TMPDIR": str(tmp_path)}  # nobody is left to empty it
    with subprocess.Popen([sys.executable, script], env=own) as parent:
        deadline = time.monotonic() + 120
        while not pid.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        parent.kill()
    orphan = int(pid.read_text())
    deadline = time.monotonic() + 20
    while psutil.pid_exists(orphan) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(orphan)
