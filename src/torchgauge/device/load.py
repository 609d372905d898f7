"""Load from other processes and throttling over a stretch of time."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from torchgauge.device.counters import MachineTimes, machine_times, own_time
from torchgauge.device.gpu_metrics import GpuMetrics

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
