"""The same grid on a local Ray of three workers, one of which is killed in the middle."""

import os
import signal
import threading
import time

import msgspec
import psutil
import pytest
from tests.support.sweeps import cell

import torchgauge as tg
from torchgauge.api.sweeps import sweep_request
from torchgauge.errors import InputError, MissingExtraError
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.records.finding import Failure
from torchgauge.records.sweep import CellSettings
from torchgauge.sweeps.job import Entry
from torchgauge.sweeps.sweep_options import SweepOptions
from torchgauge.targets.target import TargetRequest

ray_missing = "Ray is not installed: pip install 'torchgauge-profiler[ray]'"
GRID = {"batch": [1, 2, 4], "precision": ["fp32", "bf16"], "threads": 1}

MODEL = """
import os, time
from pathlib import Path
from torch import nn, randn

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        mark = Path(os.environ["SWEPT"]) / f"{os.getpid()}-{len(x)}-{os.getppid()}"
        mark.touch()
        time.sleep(0.05)
        return self.layer(x)

def make():
    return Slow(), randn(1, 16)
"""


@pytest.fixture
def ray(monkeypatch, tmp_path):
    ray = pytest.importorskip("ray", reason=ray_missing)
    monkeypatch.setenv("SWEPT", str(tmp_path))
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def kill_a_worker(folder, killed):
    """Kill the worker of the first cell that runs: the parent of the process that measures."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for mark in folder.glob("*-*-*"):
            number, batch, parent = map(int, mark.name.split("-"))
            if psutil.pid_exists(number) and psutil.pid_exists(parent):
                os.kill(parent, signal.SIGKILL)
                killed.append((number, batch, parent))
                return
        time.sleep(0.02)


def form(record):
    """Return the names and types of all that a cell holds, whatever the numbers are."""

    def shape(value):
        if isinstance(value, dict):
            return {key: shape(inner) for key, inner in value.items()}
        return type(value).__name__

    cells = [msgspec.to_builtins(one) for one in record.cells]
    for one in cells:
        one["memory"].pop("timeline")
        one["warnings"] = one["latency"] = one["throughput"] = None
    return [shape(one) for one in cells]


def swept(target, executor):
    return sweep_request(
        TargetRequest(target, device="cpu"),
        GRID,
        SweepOptions(executor, measure_all=True),
        LatencyOptions(warmup=1, iterations=20),
        progress=False,
    )


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_no_cell(ray, tmp_path):
    (tmp_path / "slowmodel.py").write_text(MODEL)
    killed = []
    threading.Thread(target=kill_a_worker, args=(tmp_path, killed), daemon=True).start()
    target = f"{tmp_path}/slowmodel.py:make"
    found = swept(target, executor="ray")
    ((number, _, parent),) = killed
    assert not psutil.pid_exists(number)  # the cell's process ended with its worker
    assert not psutil.pid_exists(parent)
    assert [one.status for one in found.cells] == ["done"] * 6
    assert found.executor == "ray"
    here = swept(target, executor="process")
    assert form(found) == form(here)
    assert [one.settings for one in found.cells] == [one.settings for one in here.cells]
    processes = {mark.name.split("-")[2] for mark in tmp_path.glob("*-*-*")}
    assert len(processes - {str(parent), str(os.getpid())}) >= 3  # three workers took part


@pytest.mark.slow
def test_what_is_wrong_with_the_target_arrives_from_a_worker(ray, tmp_path):
    with pytest.raises(InputError) as caught:
        swept(f"{tmp_path}/nothing.py:make", executor="ray")
    assert caught.value.id == "file-missing"


def test_answers_travel_as_text():
    from torchgauge.sweeps.executor import _fitting, answer

    entry = Entry(number=1, cell=cell(4, precision="bf16"))
    assert answer(msgspec.json.encode(entry)) == entry
    error = answer(msgspec.json.encode(Failure.from_error(InputError("No.", id="x", remedy="y"))))
    assert isinstance(error, InputError)
    assert (error.id, error.remedy) == ("x", "y")
    assert entry.cell.settings == CellSettings(batch=4, precision="bf16")
    assert _fitting({"CPU": 8.0, "GPU": 2.0}, {"CPU": 1, "GPU": 1}) == 2
    assert _fitting({"CPU": 8.0}, {"CPU": 3, "GPU": 0}) == 2
    assert _fitting({"CPU": 8.0}, {"CPU": 1, "GPU": 1}) == 0


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError) as caught:
        tg.sweep(len, None, {"batch": 1}, executor="ray")
    assert "torchgauge-profiler[ray]" in caught.value.remedy
