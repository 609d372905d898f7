"""Who else used the machine during a stretch of time, and whether it was throttled."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import psutil

from torchgauge.device.gpu_metrics import GpuMetrics

THERMAL = Path("/sys/devices/system/cpu")


@dataclasses.dataclass(frozen=True)
class Load:
    """One stretch of time: fractions of all cores' time; None where the system does not tell.

    `other`: time of other processes. `steal`: time the hypervisor gave to others. `throttled`:
    how often cores were slowed down for their heat; `gpu_throttled`: why a GPU was slowed down.
    """

    other: float
    steal: float | None
    throttled: int | None
    gpu_throttled: tuple[str, ...] = ()


class LoadWatch:
    """Reads the counters once now, and once more when asked for the load since then."""

    def __init__(self, gpus: GpuMetrics, thermal: Path = THERMAL) -> None:
        self._gpus = gpus
        self._thermal = thermal
        self._process = psutil.Process()
        self._before = self._read()

    def load(self) -> Load:
        """Return the load since the construction."""
        (total, busy, steal, ours, heat), before = self._read(), self._before
        elapsed = max(total - before[0], 1e-9)
        reasons = [self._gpus.read(index).throttled or () for index in self._gpus.names]
        others = (busy - before[1]) - (ours - before[3])
        return Load(
            other=min(max(others / elapsed, 0.0), 1.0),
            steal=None if steal is None or before[2] is None else (steal - before[2]) / elapsed,
            throttled=None if heat is None or before[4] is None else heat - before[4],
            gpu_throttled=tuple(dict.fromkeys(reason for some in reasons for reason in some)),
        )

    def _read(self) -> tuple[float, float, float | None, float, int | None]:
        total, busy, steal = machine_times()
        return total, busy, steal, process_time(self._process), self._heat()

    def _heat(self) -> int | None:
        files = list(self._thermal.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
        try:
            return sum(int(file.read_text()) for file in files) if files else None
        except (OSError, ValueError):
            return None


def process_time(process: psutil.Process) -> float:
    """Return the CPU seconds that the process has spent."""
    times = process.cpu_times()
    return float(times.user + times.system)


def machine_times() -> tuple[float, float, float | None]:
    """Return all cores' seconds since boot: in all, busy in this system, stolen from it."""
    times = psutil.cpu_times()
    steal = getattr(times, "steal", None)
    idle = times.idle + getattr(times, "iowait", 0.0)
    # A guest's time is part of user time already.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total, total - idle - (steal or 0.0), steal
