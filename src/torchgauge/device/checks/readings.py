"""Inputs of the checks and the state of each GPU, read once, so that checks are pure."""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import sys
import sysconfig
import tracemalloc
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from torchgauge import torch_private
from torchgauge.clock import SystemClock, resolution
from torchgauge.device.checks.activity import Activity
from torchgauge.device.counters import logical_cores
from torchgauge.device.cpu import SystemFiles, affinity, least_quota
from torchgauge.device.load import THROTTLE_REASONS, answer


@dataclasses.dataclass(frozen=True)
class PythonState:
    """How this interpreter was built and what watches it; `watchers` names trace functions."""

    debug_build: bool = False
    development_mode: bool = False
    watchers: tuple[str, ...] = ()
    collector: bool = True


@dataclasses.dataclass(frozen=True)
class TorchState:
    """How torch was built, and its settings in this process."""

    threads: int
    debug_build: bool = False
    anomaly: bool = False
    deterministic: bool = False
    profiling: bool = False
    onednn: bool = True
    cuda: bool = False
    cudnn_benchmark: bool = False


@dataclasses.dataclass(frozen=True)
class Readings:
    """The machine and this process at one moment; None is what was not or could not be read.

    `usable`: the cores this process may run on. `timer`: seconds between two readings of the
    clock. `activity`: what happened during a stretch of time. `torch`: None where not imported.
    """

    files: SystemFiles
    logical_cores: int
    usable: tuple[int, ...]
    variables: Mapping[str, str]
    python: PythonState
    timer: float
    torch: TorchState | None = None
    activity: Activity | None = None
    gpus: Gpus | None = None

    @property
    def quota(self) -> float | None:
        """The least quota of this process's cgroup and those above it, in cores."""
        return least_quota(self.files)

    @property
    def granted(self) -> float:
        """The cores' worth of time this process can get."""
        quota = self.quota
        return len(self.usable) if quota is None else min(float(len(self.usable)), quota)


def read_inputs(
    files: SystemFiles | None = None, activity: Activity | None = None, gpus: Gpus | None = None
) -> Readings:
    """Return the readings of this process now; torch is looked at only if it is imported."""
    return Readings(
        files=files or SystemFiles(),
        logical_cores=logical_cores(),
        usable=affinity(),
        variables=os.environ,
        python=python_state(),
        timer=resolution(SystemClock(), readings=50),
        torch=torch_state(sys.modules.get("torch")),
        activity=activity,
        gpus=gpus,
    )


def python_state() -> PythonState:
    """Return how this interpreter was built and is watched."""
    watchers = []
    for hook, function in (("sys.settrace", sys.gettrace()), ("sys.setprofile", sys.getprofile())):
        if function is not None:
            kind = type(function)
            name = getattr(function, "__module__", None) or kind.__module__
            watchers.append(f"{hook} ({name}.{getattr(function, '__qualname__', kind.__name__)})")
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    if monitoring is not None:
        tools = [monitoring.get_tool(number) for number in range(6)]
        watchers += [f"sys.monitoring ({tool})" for tool in tools if tool]
    if tracemalloc.is_tracing():
        watchers.append("tracemalloc")
    return PythonState(
        debug_build=hasattr(sys, "gettotalrefcount") or bool(sysconfig.get_config_var("Py_DEBUG")),
        development_mode=sys.flags.dev_mode,
        watchers=tuple(watchers),
        collector=gc.isenabled(),
    )


def torch_state(torch: Any) -> TorchState | None:
    """Return how torch was built and its settings; None where it is not imported."""
    if torch is None or not hasattr(torch, "get_num_threads"):
        return None
    return TorchState(
        threads=torch.get_num_threads(),
        debug_build=bool(torch.version.debug),
        anomaly=torch.is_anomaly_enabled(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        profiling=torch_private.profiler_on(),
        onednn=bool(torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled),
        cuda=torch.cuda.is_available(),
        cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
    )


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
        missing = "nvidia-ml-py is not installed: pip install 'torchgauge-profiler[nvidia]'"
        return Gpus(unknown=missing if driver else "")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(unknown=f"the driver does not answer: {error}" if driver else "")
    try:
        return read_gpus(pynvml)
    except pynvml.NVMLError as error:
        return Gpus(unknown=f"the driver does not answer: {error}")
    finally:
        pynvml.nvmlShutdown()


def read_gpus(nvml: ModuleType | Any) -> Gpus:
    """Return the state of every GPU that an opened NVML lists."""
    return Gpus(tuple(_state(nvml, index) for index in range(nvml.nvmlDeviceGetCount())))


def _state(nvml: ModuleType | Any, index: int) -> GpuState:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    ask = functools.partial(answer, nvml, handle)

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
