"""What a measured run leaves with the host, and what the host says of the next one."""

import msgspec
import pytest
import torch

import torchgauge as tg
from torchgauge.device import past_runs
from torchgauge.device.environment import environment


@pytest.fixture
def file(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path))
    return tmp_path / "past_runs.json"


def test_the_yardstick_is_remembered_and_tells_the_speed_of_the_sixth_run(file):
    fingerprint = environment().machine.fingerprint
    module = torch.nn.Linear(8, 8)
    latency = tg.measure_latency(module, torch.randn(1, 8), budget=0.5, progress=False)
    (run,) = past_runs.past_runs(fingerprint)
    assert run.yardstick == latency.yardstick.times
    assert {"matmul", "copy", "python", "dispatch"} <= run.yardstick.keys()
    assert latency.yardstick.speed is None
    # A host on which all of it took half as long, five times.
    halved = {kind: seconds / 2 for kind, seconds in run.yardstick.items()}
    for number in range(5):
        earlier = msgspec.structs.replace(run, created=str(number), yardstick=halved)
        past_runs.remember(fingerprint, earlier, file)
    again = tg.measure_latency(module, torch.randn(1, 8), iterations=20, progress=False).yardstick
    assert again.runs == 6
    logs = [halved[kind] / again.times[kind] for kind in ("matmul", "copy", "python", "dispatch")]
    product = logs[0] * logs[1] * logs[2] * logs[3]
    assert again.speed == pytest.approx(product**0.25)
