"""State of each NVIDIA GPU before a measurement, from NVML."""

from __future__ import annotations

import dataclasses
import os
from types import ModuleType
from typing import Any

from torchgauge.device.cpu import SystemFiles
from torchgauge.device.load import THROTTLE_REASONS


@dataclasses.dataclass(frozen=True)
class GpuState:
    """One GPU: watts, hertz, bytes; None where it does not report it.

    `others` counts the processes on it beside this one, `used` the bytes anybody holds.
    """

    index: int
    name: str
    limit: float | None = None
    default_limit: float | None = None
    clock: float | None = None
    highest_clock: float | None = None
    application_clock: float | None = None
    persistent: bool | None = None
    throttled: tuple[str, ...] | None = None
    utilization: float | None = None
    used: int | None = None
    other_processes: int | None = None


@dataclasses.dataclass(frozen=True)
class Gpus:
    """The GPUs of the machine; `unknown` says why none could be asked."""

    states: tuple[GpuState, ...] = ()
    unknown: str = ""


def gpus(files: SystemFiles) -> Gpus:
    """Return the state of every NVIDIA GPU; without a driver there is none."""
    driver = files.text("proc/driver/nvidia/version")
    try:
        import pynvml
    except ImportError:
        missing = "nvidia-ml-py is not installed: pip install 'torchgauge[nvidia]'"
        return Gpus(unknown=missing if driver else "")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(unknown=f"the driver does not answer: {error}" if driver else "")
    try:
        return read(pynvml)
    except pynvml.NVMLError as error:
        return Gpus(unknown=f"the driver does not answer: {error}")
    finally:
        pynvml.nvmlShutdown()


def read(nvml: ModuleType | Any) -> Gpus:
    """Return the state of every GPU that an opened NVML lists."""
    return Gpus(tuple(_state(nvml, index) for index in range(nvml.nvmlDeviceGetCount())))


def _state(nvml: ModuleType | Any, index: int) -> GpuState:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str, *arguments: object) -> Any:
        try:
            return getattr(nvml, name)(handle, *arguments)
        except nvml.NVMLError:
            return None

    def scaled(name: str, factor: float, *arguments: object) -> float | None:
        value = ask(name, *arguments)
        return None if value is None else value * factor

    name = ask("nvmlDeviceGetName") or "GPU"
    reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    processes = ask("nvmlDeviceGetComputeRunningProcesses")
    persistence = ask("nvmlDeviceGetPersistenceMode")
    memory, rates = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetUtilizationRates")
    return GpuState(
        index=index,
        name=name.decode() if isinstance(name, bytes) else str(name),
        limit=scaled("nvmlDeviceGetEnforcedPowerLimit", 1e-3),
        default_limit=scaled("nvmlDeviceGetPowerManagementDefaultLimit", 1e-3),
        clock=scaled("nvmlDeviceGetClockInfo", 1e6, nvml.NVML_CLOCK_SM),
        highest_clock=scaled("nvmlDeviceGetMaxClockInfo", 1e6, nvml.NVML_CLOCK_SM),
        application_clock=scaled("nvmlDeviceGetApplicationsClock", 1e6, nvml.NVML_CLOCK_SM),
        persistent=None if persistence is None else bool(persistence),
        throttled=None
        if reasons is None
        else tuple(reason for bit, reason in THROTTLE_REASONS.items() if reasons & bit),
        utilization=None if rates is None else rates.gpu / 100,
        used=None if memory is None else int(memory.used),
        other_processes=None if processes is None else sum(p.pid != os.getpid() for p in processes),
    )
