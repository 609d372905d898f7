"""One recording under torch.profiler, whichever torch it is."""

from __future__ import annotations

import os

import pytest
import torch
from tests.support.fakes import FakeClock

from torchgauge.measure.recording import recording
from torchgauge.readers.kineto.kineto import read_events


def test_a_torch_without_the_newer_switch_records_the_same(monkeypatch):
    newest = recording._ExperimentalConfig
    asked = []

    def older(**switches):
        """torch 2.11's: its constructor refuses what it does not know."""
        asked.append(dict(switches))
        if "trace_only" in switches:
            raise TypeError("incompatible constructor arguments")
        return newest(**switches)

    def names():
        events = read_events(recording.record(lambda: torch.ones(8, 8) @ torch.ones(8, 8)))
        return {str(name) for name in events.name if str(name).startswith("aten::")}

    expected = names()
    monkeypatch.setattr(recording, "_ExperimentalConfig", older)
    assert names() == expected
    assert "aten::matmul" in expected
    assert asked[-1] == {"profile_all_threads": False, "capture_overload_names": False}


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
