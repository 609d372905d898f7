"""NVML through a fake of its module: the calls, units and absences that the real one has."""

import sys
from types import SimpleNamespace

import pytest

from torchgauge.device.load import NoGpu, Nvml, gpu_metrics, gpus_of
from torchgauge.measure.machine import system


class FakeNvml:
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self, readings):
        self.readings = readings

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return uuid

    def nvmlDeviceGetName(self, handle):
        return b"NVIDIA Fake"

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def ask(handle, *arguments):
            if name not in self.readings:
                raise self.NVMLError("Not Supported")
            return self.readings[name]

        return ask


READINGS = {
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=5_000_000_000),
    "nvmlDeviceGetPowerUsage": 312_500,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetClockInfo": 1_980,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4 | 0x1 | 0x40,
}


def test_readings_are_in_si_units():
    gpus = Nvml(FakeNvml(READINGS), {0: "GPU-x"})
    assert gpus.names == {0: "NVIDIA Fake"}
    reading = gpus.read(0)
    assert reading.utilization == 0.87
    assert reading.memory == 5_000_000_000
    assert reading.power == 312.5
    assert reading.clock == 1.98e9
    assert reading.throttled == ("power cap", "thermal (hardware)")


def test_what_a_gpu_does_not_support_is_unknown():
    reading = Nvml(FakeNvml({}), {0: "GPU-x"}).read(0)
    assert (reading.utilization, reading.memory, reading.power, reading.clock) == (None,) * 4
    assert reading.throttled is None


def test_the_cpu_has_no_gpu_readings():
    with gpu_metrics("cpu") as gpus:
        assert gpus.names == {}
    assert NoGpu().read(0).utilization is None


def test_the_system_probe_records_the_gpu(monkeypatch):
    monkeypatch.setattr(system, "GPU_SETTLING", 0.02)
    gpus = Nvml(FakeNvml(READINGS), {0: "GPU-x"})
    found = system.measure(lambda: None, gpus=gpus, duration=0.05, interval=0.01)
    (gpu,) = found.gpus
    assert gpu.name == "NVIDIA Fake"
    assert gpu.utilization.mean == pytest.approx(0.87)
    assert gpu.throttled == ("power cap", "thermal (hardware)")
    assert found.warnings == ()


def test_utilization_from_before_the_run_does_not_count():
    gpus = Nvml(FakeNvml(READINGS), {0: "GPU-x"})
    found = system.measure(lambda: None, gpus=gpus, duration=0.05, interval=0.01)
    assert found.gpus[0].utilization is None  # the driver's figure is an average over a second
    assert found.gpus[0].power.mean == 312.5


def test_a_gpu_nobody_can_read_is_said_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with gpu_metrics("cuda:0") as gpus:
        found = system.measure(lambda: None, gpus=gpus, duration=0.02, interval=0.01)
    assert found.gpus == ()
    assert [w.id for w in found.warnings] == ["gpu-metrics-absent"]
    assert "torchgauge-profiler[nvidia]" in found.warnings[0].message


def test_of_a_server_the_gpus_are_read_on_which_it_runs(monkeypatch):
    nvml = FakeNvml(READINGS)
    nvml.nvmlInit = nvml.nvmlShutdown = lambda: None
    nvml.nvmlDeviceGetCount = lambda: 2
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}"
    running = {0: [SimpleNamespace(pid=3)], 1: [SimpleNamespace(pid=7), SimpleNamespace(pid=8)]}
    nvml.nvmlDeviceGetComputeRunningProcesses = running.get
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with gpus_of((8, 9)) as gpus:
        assert list(gpus.names) == [1]
        assert gpus.read(1).utilization == 0.87
    with gpus_of((9,)) as gpus:
        assert gpus.names == {}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with gpus_of((8,)) as gpus:
        assert gpus.names == {}
