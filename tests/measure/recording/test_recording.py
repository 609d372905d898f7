"""One recording under torch.profiler, whichever torch it is."""

from __future__ import annotations

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
