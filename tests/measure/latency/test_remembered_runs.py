"""What a measured run leaves with the host, and what the host says of the next one."""

import msgspec
import pytest
import torch
from tests.support import records

from torchgauge.device import calibration
from torchgauge.device.environment import environment
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.latency.latency_runs import LatencyRuns, combined
from torchgauge.progress import Silent
from torchgauge.targets.builds.source import Source

WORK = {"matmul": 1e-4, "copy": 2e-5, "python": 5e-5, "dispatch": 4e-5}


def latency(factor, processes=3):
    """Combine the runs of processes on a machine whose work takes `factor` as long."""
    source = Source.of_object(torch.nn.Linear(8, 8), torch.ones(1, 8))
    runs = LatencyRuns(source, LatencyOptions(), Silent())
    (run,) = records.latency().processes
    work = {kind: factor * seconds for kind, seconds in WORK.items()}
    runs.runs = [msgspec.structs.replace(run, yardstick=work)] * processes
    return combined(runs, source.open(), LatencyOptions())


def test_the_yardstick_is_remembered_and_tells_the_speed_of_the_sixth_run(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path))
    for number in range(5):
        found = latency(1.0)
        assert found.yardstick.times == WORK
        assert found.yardstick.speed is None
        kept = calibration.past_runs(environment().machine.fingerprint)
        assert [run.yardstick for run in kept] == [WORK] * (number + 1)
    slow = latency(1.25).yardstick
    assert slow.speed == pytest.approx(0.8)
    assert (slow.runs, slow.unusual) == (5, True)
