"""Energy counters of processors (RAPL) and GPUs (NVML), read through zeus (extra `energy`).

Of zeus the devices are used and not its monitor, which integrates samples of power where there is
no counter, leaves out processors that it may not read, and starts a process for each counter. Its
count of wraps takes a reset for one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torchgauge.device.cpu import SystemFiles
from torchgauge.device.load import uuids
from torchgauge.errors import missing_extra
from torchgauge.records.work.energy import EnergyPart

POWERCAP = "sys/class/powercap"
VIRTUAL = "This is a virtual machine: the hardware's counters are not in it."
NO_COUNTERS = (
    "The kernel shows no energy counters (/sys/class/powercap): the processor has none, or the "
    "module intel_rapl_msr is not loaded."
)
DENIED = (
    "Its counter may be read by root alone. To allow it until the next boot: "
    "sudo chmod o+r /sys/class/powercap/intel-rapl:*/energy_uj"
)
_ZONE = re.compile(r"intel-rapl:(\d+)(?::(\d+))?")
_MICRO, _MILLI = 1e-6, 1e-3


class Counter(NamedTuple):
    """A counter of joules since some time in the past; `reason` says why it cannot be read.

    It begins again at zero at `range`; None of one that never does.
    """

    name: str
    part: EnergyPart
    read: Callable[[], float] | None = None
    range: float | None = None
    reason: str = ""


def check_available() -> None:
    """Raise MissingExtraError where zeus is not installed."""
    if importlib.util.find_spec("zeus") is None:
        raise missing_extra("zeus", "energy", "Energy")


@contextlib.contextmanager
def energy_counters(device: str, files: SystemFiles | None = None) -> Iterator[tuple[Counter, ...]]:
    """Open the counters of the processors, and of the GPUs that run a target on `device`.

    Raises MissingExtraError.
    """
    check_available()
    counters = processor_counters(files or SystemFiles())
    if not device.startswith("cuda"):
        yield counters
        return
    with gpu_counters(_gpus_in_use(device)) as gpus:
        yield (*gpus, *counters)


def is_virtual(files: SystemFiles) -> bool:
    """Return whether the processor says that it is one of a virtual machine."""
    lines = (files.text("proc/cpuinfo") or "").splitlines()
    return any(line.startswith("flags") and "hypervisor" in line.split() for line in lines)


def zones(files: SystemFiles) -> dict[str, EnergyPart]:
    """Return the counters of packages and memories by folder; others are parts of a package.

    The platform's own ("psys") has the packages in it.
    """
    parts: dict[str, EnergyPart] = {}
    for path, name in files.texts(f"{POWERCAP}/intel-rapl:*/name").items():
        folder = path.rpartition("/")[0]
        match = _ZONE.fullmatch(folder.rpartition("/")[2])
        if match and not match[2] and name.startswith("package"):
            parts[folder] = "package"
        elif match and match[2] and name == "dram":
            parts[folder] = "dram"
    return parts


def processor_counters(files: SystemFiles) -> tuple[Counter, ...]:
    """Return a counter for each package, and for its memory where that has one."""
    if is_virtual(files):
        return (Counter("processor", "package", reason=VIRTUAL),)
    counters = tuple(_zone(files, folder, part) for folder, part in zones(files).items())
    return counters or (Counter("processor", "package", reason=NO_COUNTERS),)


def _zone(files: SystemFiles, folder: str, part: EnergyPart) -> Counter:
    from zeus.device.cpu.common import ZeusCPUNoPermissionError
    from zeus.device.cpu.rapl import RAPLFile

    number = folder.rpartition("/")[2].split(":")[1]
    name = f"{'memory' if part == 'dram' else 'package'} {number}"
    try:
        zone = RAPLFile(str(files.root / folder))
    except ZeusCPUNoPermissionError:
        return Counter(name, part, reason=DENIED)
    except Exception as error:  # noqa: BLE001 - a broken file: of zeus's classes and of Python's
        return Counter(name, part, reason=f"Its counter cannot be read: {error}.")

    def read() -> float:
        # Not zone.read(): that starts a process that looks for wraps, and counts them wrongly.
        return int(Path(zone.energy_uj_path).read_text()) * _MICRO

    return Counter(name, part, read, zone.max_energy_range_uj * _MICRO)


@contextlib.contextmanager
def gpu_counters(gpus: dict[int, str]) -> Iterator[tuple[Counter, ...]]:
    """Open the counters of GPUs, given by their UUIDs."""
    import pynvml  # zeus needs it

    with contextlib.ExitStack() as stack:
        try:
            pynvml.nvmlInit()
            stack.callback(pynvml.nvmlShutdown)
        except pynvml.NVMLError as error:
            yield tuple(
                Counter(f"GPU {i}", "gpu", reason=f"The driver does not answer: {error}.")
                for i in gpus
            )
            return
        yield tuple(_gpu(pynvml, index, uuid) for index, uuid in gpus.items())


def _gpu(nvml: Any, index: int, uuid: str) -> Counter:
    from zeus.device.gpu.nvidia import NVIDIAGPU

    name = f"GPU {index}"
    try:
        # By UUID: torch's numbers and the driver's differ under CUDA_VISIBLE_DEVICES.
        gpu = NVIDIAGPU(nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(uuid)))
        gpu.get_total_energy_consumption()  # zeus judges by the architecture alone
    except Exception as error:  # noqa: BLE001 - a class for each of the driver's errors
        return Counter(name, "gpu", reason=f"The driver has no energy counter of it: {error}.")
    return Counter(name, "gpu", lambda: gpu.get_total_energy_consumption() * _MILLI)


def _gpus_in_use(device: str) -> dict[int, str]:
    """Return the UUIDs of the target's GPU and of others on which this process holds tensors."""
    import torch

    occupied = [i for i in range(torch.cuda.device_count()) if torch.cuda.memory_allocated(i)]
    named = uuids(device)
    for index in occupied:
        named |= uuids(f"cuda:{index}")
    return named
