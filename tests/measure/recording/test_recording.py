"""One recording under torch.profiler, whichever torch it is."""

from __future__ import annotations

import os
import threading

import pytest
import torch
from tests.support.fakes import FakeClock

from torchgauge import torch_private
from torchgauge.errors import MeasurementError
from torchgauge.measure.recording import recording
from torchgauge.readers.kineto.kineto import read_events


def test_a_torch_without_the_newer_switch_records_the_same(monkeypatch):
    newest = torch_private.RecordingConfig
    asked = []

    def older(**switches):
        """torch 2.11's: its constructor refuses what it does not know."""
        asked.append(dict(switches))
        if "trace_only" in switches:
            raise TypeError("incompatible constructor arguments")
        return newest(**switches)

    expected = names()
    monkeypatch.setattr(torch_private, "RecordingConfig", older)
    assert names() == expected
    assert "aten::matmul" in expected
    assert asked[-1] == {"profile_all_threads": False, "capture_overload_names": False}


def names(work=lambda: torch.ones(8, 8) @ torch.ones(8, 8)):
    """Return the operators that a recording has."""
    events = read_events(recording.record(work))
    return {str(name) for name in events.name if str(name).startswith("aten::")}


def begin_and_end_the_thread(profiler):
    thread = threading.Thread(target=profiler.__enter__)
    thread.start()
    thread.join()


@pytest.mark.parametrize("kind", [torch.profiler.profile, torch.autograd.profiler.profile])
def test_a_profiler_whose_thread_is_gone_gives_way(kind, monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # but for pytest's own
    lost = kind()
    begin_and_end_the_thread(lost)
    assert "aten::matmul" in names()
    assert "aten::matmul" in names()
    del lost


def test_a_profiler_that_nothing_holds_gives_way_while_other_threads_run():
    begin_and_end_the_thread(torch.autograd.profiler.profile())
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert "aten::matmul" in names()
    finally:
        ended.set()
        thread.join()


def test_a_profiler_of_a_thread_that_may_run_is_left_to_it():
    began, ended = threading.Event(), threading.Event()

    def profiled():
        with torch.autograd.profiler.profile() as profiler:
            began.set()
            ended.wait()
            torch.ones(3).cos()
        recorded.append({event.name for event in profiler.function_events})

    recorded = []
    thread = threading.Thread(target=profiled)
    thread.start()
    try:
        assert began.wait(60)
        with pytest.raises(MeasurementError) as error:
            recording.record(lambda: None)
    finally:
        ended.set()
        thread.join()
    assert error.value.id == "profiler-active"
    assert "in another process" in error.value.remedy
    assert "aten::cos" in recorded[0]


def test_a_recording_that_torch_cannot_end_is_lost_and_the_next_one_is_not(monkeypatch):
    def refused():
        monkeypatch.undo()
        torch.autograd.profiler._disable_profiler()
        raise RuntimeError("inside torch")

    def work():
        monkeypatch.setattr(torch.autograd.profiler, "_disable_profiler", refused)

    with pytest.raises(RuntimeError, match="inside torch"):
        recording.record(work)
    assert "aten::matmul" in names()


def test_a_profiler_that_never_begins_is_an_error_with_a_remedy(monkeypatch):
    def refused(*arguments, **options):
        raise RuntimeError("Can't disable Kineto profiler when it's not running")

    for name in ("_prepare_profiler", "_enable_profiler"):
        monkeypatch.setattr(torch.autograd.profiler, name, refused)
    with pytest.raises(MeasurementError) as error:
        recording.record(lambda: None)
    assert (error.value.id, error.value.remedy) == (
        "profiler-broken",
        "Measure in a process of its own.",
    )
    monkeypatch.undo()
    waits = threading.Event()
    thread = threading.Thread(target=waits.wait, daemon=True)
    thread.start()  # another thread, which could have begun a recording
    assert "aten::matmul" in names()
    waits.set()
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_forked_by_the_recorded_work_ends_after_it():
    parent = os.getpid()

    def work():
        if (child := os.fork()) != 0:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    codes = []
    try:
        assert recording.record(work)
    except BaseException as error:
        if os.getpid() == parent:
            raise
        os._exit(0 if isinstance(error, SystemExit) and error.code == 0 else 3)
    assert codes == [0]


@pytest.mark.parametrize(
    ("states", "pauses"),
    [
        ({"pt_gloo_runloop": "R", "python": "S"}, 2),  # until it sleeps
        ({"pt_gloo_runloop": "S", "python": "R"}, 0),
        ({"gloo) R": "S", "python": "R"}, 0),
        ({}, 0),
    ],
)
def test_a_recording_ends_when_no_collective_is_about_to_end(states, pauses, tmp_path, monkeypatch):
    for number, (name, state) in enumerate(states.items()):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "stat").write_text(f"{number} ({name}) {state} 1 1")
    paused = []

    def sleep(seconds):
        paused.append(seconds)
        if len(paused) == 2:
            (tmp_path / "0" / "stat").write_text("0 (pt_gloo_runloop) S 1 1")

    monkeypatch.setattr(recording.time, "sleep", sleep)
    recording._let_collectives_end(tmp_path)
    assert len(paused) == pauses


def test_a_collective_that_does_not_end_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (pt_gloo_runloop) R 1 1")
    clock = FakeClock()
    monkeypatch.setattr(recording.time, "sleep", clock.advance)
    monkeypatch.setattr(recording.time, "monotonic", lambda: clock.time / 1e9)
    recording._let_collectives_end(tmp_path)
    assert clock.time == pytest.approx(50e6, rel=0.1)


def test_lines_of_torchs_own_are_left_out_and_a_users_line_is_not(capfd):
    with recording._quiet():
        os.write(2, b"ERROR:2026-01-01 DeviceProperties.cpp:56] gpuGetDeviceCount failed with code")
        os.write(2, b" 35\nthe user's\n")
    assert capfd.readouterr().err == "the user's\n"
