"""What an NVIDIA driver tells of its GPUs while they work (NVML, extra `nvidia`)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Protocol

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
    """One GPU at one moment: fraction, bytes, watts, °C, hertz; None where it does not tell."""

    utilization: float | None
    memory: int | None
    power: float | None
    temperature: float | None
    clock: float | None
    throttled: tuple[str, ...] = ()


class GpuMetrics(Protocol):
    """A source of readings for some GPUs."""

    @property
    def names(self) -> dict[int, str]:
        """The GPUs by index."""
        ...

    def read(self, index: int) -> GpuReading:
        """Return the present reading of one GPU."""
        ...


class NoGpu:
    """The null object: there is no GPU to read."""

    names: dict[int, str] = {}  # noqa: RUF012 - shared because it is always empty

    def read(self, index: int) -> GpuReading:
        """Return nothing known."""
        del index
        return GpuReading(None, None, None, None, None)


class Nvml:
    """GPUs through the driver's management library."""

    def __init__(self, nvml: ModuleType | Any, uuids: dict[int, str]) -> None:
        """Open the GPUs by UUID: torch's numbering and NVML's differ under CUDA_VISIBLE_DEVICES."""
        self._nvml = nvml
        self._handles = {i: nvml.nvmlDeviceGetHandleByUUID(uuid) for i, uuid in uuids.items()}
        self.names = {i: _text(nvml.nvmlDeviceGetName(h)) for i, h in self._handles.items()}

    def read(self, index: int) -> GpuReading:
        """Return the present reading; a figure the GPU does not support is None."""
        nvml, handle = self._nvml, self._handles[index]

        def ask(name: str, *arguments: object) -> Any:
            try:
                return getattr(nvml, name)(handle, *arguments)
            except nvml.NVMLError:
                return None

        rates = ask("nvmlDeviceGetUtilizationRates")
        memory = ask("nvmlDeviceGetMemoryInfo")
        power = ask("nvmlDeviceGetPowerUsage")
        clock = ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return GpuReading(
            utilization=None if rates is None else rates.gpu / 100,
            memory=None if memory is None else int(memory.used),
            power=None if power is None else power / 1e3,
            temperature=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            clock=None if clock is None else clock * 1e6,
            throttled=tuple(name for bit, name in THROTTLE_REASONS.items() if reasons & bit),
        )


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


@contextlib.contextmanager
def gpu_metrics(device: str) -> Iterator[GpuMetrics]:
    """Open the readings of the GPU that `device` names; the null object for every other device.

    Without the extra `nvidia` or without a working driver there are no readings either.
    """
    if not device.startswith("cuda"):
        yield NoGpu()
        return
    try:
        import pynvml
        import torch
    except ImportError:
        yield NoGpu()
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield NoGpu()
        return
    try:
        index = int(device.partition(":")[2] or 0)
        uuid = f"GPU-{torch.cuda.get_device_properties(index).uuid}"
        yield Nvml(pynvml, {index: uuid})
    finally:
        pynvml.nvmlShutdown()
