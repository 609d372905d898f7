"""One recording under torch.profiler, whichever torch it is."""

from __future__ import annotations

import os

import pytest
import torch

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
