"""Load from other processes and throttling over a stretch of time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from torchgauge.device.counters import MachineTimes, machine_times, own_time

# NVML's bits for reduced clocks; idle (bit 0) and the user's own setting (bit 1) are no throttling.
THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


@dataclasses.dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment: fraction, bytes, watts, °C, hertz; None where it does not report it.

    `memory` is in use by anybody, not by this process alone.
    """

    utilization: float | None
    memory: int | None
    power: float | None
    temperature: float | None
    clock: float | None
    throttled: tuple[str, ...] | None = None


class GpuMetrics(Protocol):
    """A source of readings for some GPUs."""

    absent: str
    """Why a GPU in use is not read; empty if it is."""

    @property
    def names(self) -> dict[int, str]:
        """The GPUs by index."""

    def read(self, index: int) -> GpuReading:
        """Return the present reading of one GPU."""


class NoGpu:
    """The null object: there is no GPU to read, or `absent` says why not."""

    def __init__(self, absent: str = "") -> None:
        self.absent = absent
        self.names: dict[int, str] = {}

    def read(self, index: int) -> GpuReading:
        """Return nothing known."""
        del index
        return GpuReading(None, None, None, None, None)


def answer(nvml: ModuleType | Any, handle: Any, name: str, *arguments: object) -> Any:
    """Return what a function of NVML says of a GPU; None where it is not supported."""
    try:
        return getattr(nvml, name)(handle, *arguments)
    except nvml.NVMLError:
        return None


class Nvml:
    """GPUs through the driver's management library."""

    absent = ""

    def __init__(self, nvml: ModuleType | Any, uuids: dict[int, str]) -> None:
        """Open the GPUs by UUID: torch's numbering and NVML's differ under CUDA_VISIBLE_DEVICES."""
        self._nvml = nvml
        self._handles = {i: nvml.nvmlDeviceGetHandleByUUID(uuid) for i, uuid in uuids.items()}
        self.names = {i: _text(nvml.nvmlDeviceGetName(h)) for i, h in self._handles.items()}

    def read(self, index: int) -> GpuReading:
        """Return the present reading; a figure the GPU does not support is None."""
        nvml, handle = self._nvml, self._handles[index]

        ask = functools.partial(answer, nvml, handle)

        rates = ask("nvmlDeviceGetUtilizationRates")
        memory = ask("nvmlDeviceGetMemoryInfo")
        power = ask("nvmlDeviceGetPowerUsage")
        clock = ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return GpuReading(
            utilization=None if rates is None else rates.gpu / 100,
            memory=None if memory is None else int(memory.used),
            power=None if power is None else power / 1e3,
            temperature=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            clock=None if clock is None else clock * 1e6,
            throttled=None
            if reasons is None
            else tuple(name for bit, name in THROTTLE_REASONS.items() if reasons & bit),
        )


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


@contextlib.contextmanager
def gpu_metrics(device: str) -> Iterator[GpuMetrics]:
    """Open the readings of the GPU that `device` names; the null object where there are none."""
    if not device.startswith("cuda"):
        yield NoGpu()
        return
    try:
        import pynvml
    except ImportError:
        yield NoGpu("nvidia-ml-py is not installed: pip install 'torchgauge-profiler[nvidia]'.")
        return
    with contextlib.ExitStack() as stack:
        try:
            pynvml.nvmlInit()
            stack.callback(pynvml.nvmlShutdown)
            metrics: GpuMetrics = Nvml(pynvml, uuids(device))
        except pynvml.NVMLError as error:
            # No driver library (ROCm), or a slice of a GPU that has no handle of its own.
            metrics = NoGpu(f"The driver does not report it: {error}.")
        yield metrics


@contextlib.contextmanager
def gpus_of(processes: Collection[int]) -> Iterator[GpuMetrics]:
    """Open the readings of the GPUs that some processes use; the null object where none is seen.

    In a container the driver knows processes by other numbers: their GPUs are not seen.
    """
    try:
        import pynvml
    except ImportError:
        yield NoGpu()
        return
    with contextlib.ExitStack() as stack:
        metrics: GpuMetrics = NoGpu()
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            stack.callback(pynvml.nvmlShutdown)
            used = {}
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
                if any(process.pid in processes for process in running):
                    used[index] = _text(pynvml.nvmlDeviceGetUUID(handle))
            metrics = Nvml(pynvml, used)
        yield metrics


def uuids(device: str) -> dict[int, str]:
    """Return the UUID of the GPU that `device` names, by its number."""
    import torch

    index = int(device.partition(":")[2] or torch.cuda.current_device())
    return {index: f"GPU-{torch.cuda.get_device_properties(index).uuid}"}


THERMAL = Path("/sys/devices/system/cpu")


@dataclasses.dataclass(frozen=True)
class Load:
    """One stretch of time: fractions of all cores' time; None where the system does not report it.

    `other`: time of other processes. `steal`: time the hypervisor gave to others. `throttled`:
    how often cores were slowed down for their heat; `gpu_throttled`: why a GPU was slowed down.
    """

    other: float | None
    steal: float | None
    throttled: int | None
    gpu_throttled: tuple[str, ...] = ()


class LoadWatch:
    """Reads the counters once now, and once more when asked for the load since then."""

    def __init__(self, gpus: GpuMetrics, thermal: Path = THERMAL) -> None:
        self._gpus = gpus
        self._thermal = thermal
        self._before = self._read()

    def load(self) -> Load:
        """Return the load since the construction."""
        (times, own, throttles), (before, own_before, throttles_before) = self._read(), self._before
        other = steal = None
        if times is not None and before is not None:
            elapsed = max(times.total - before.total, 1e-9)
            other_seconds = (times.busy - before.busy) - (own - own_before)
            other = min(max(other_seconds / elapsed, 0.0), 1.0)
            if times.stolen is not None and before.stolen is not None:
                steal = (times.stolen - before.stolen) / elapsed
        reasons = [self._gpus.read(index).throttled or () for index in self._gpus.names]
        return Load(
            other=other,
            steal=steal,
            throttled=None
            if throttles is None or throttles_before is None
            else throttles - throttles_before,
            gpu_throttled=tuple(
                dict.fromkeys(reason for gpu_reasons in reasons for reason in gpu_reasons)
            ),
        )

    def _read(self) -> tuple[MachineTimes | None, float, int | None]:
        return machine_times(), own_time(), self._throttle_count()

    def _throttle_count(self) -> int | None:
        files = list(self._thermal.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
        try:
            return sum(int(file.read_text()) for file in files) if files else None
        except (OSError, ValueError):
            return None
