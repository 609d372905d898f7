"""What the machine did while the model ran."""

from __future__ import annotations

from torchgauge.records.record import How, MeasurementWarning, Record


class Use(Record, frozen=True, kw_only=True):
    """Mean and maximum of a quantity over the run."""

    mean: float
    max: float


class GpuSample(Record, frozen=True, kw_only=True, array_like=True):
    """One reading of a GPU: seconds from the start, a fraction, bytes, watts, hertz.

    `utilization` is None in the first second too: the driver's average then is of the time before.
    """

    time: float
    utilization: float | None
    memory: int | None
    power: float | None
    clock: float | None


class GpuUse(Record, frozen=True, kw_only=True):
    """One GPU during the run: fractions for `utilization`, bytes, watts, °C, hertz.

    `memory` is in use by anybody, not by this process alone. `throttled` names the reasons for
    reduced clocks that the driver gave in any sample, None where it gave no answer.
    """

    index: int
    name: str
    utilization: Use | None
    memory: Use | None
    power: Use | None
    temperature: Use | None
    clock: Use | None
    throttled: tuple[str, ...] | None = None
    samples: tuple[GpuSample, ...] = ()


class SystemSample(Record, frozen=True, kw_only=True, array_like=True):
    """One reading: seconds from the start, cores in use by the process, its resident bytes.

    The others are bytes per second since the reading before, as in System.
    """

    time: float
    cores: float
    rss: int | None
    disk_read: float | None = None
    disk_write: float | None = None
    io_read: float | None = None
    io_write: float | None = None
    network_sent: float | None = None
    network_received: float | None = None


class System(Record, frozen=True, kw_only=True):
    """Use of the machine during `duration` seconds of steady calls, sampled every `interval` s.

    Where the system does not tell, it is None.
    `cores` is the process's CPU time over wall time, of `core_count` that it may use. `machine` is
    the fraction of all cores that was busy, whoever used them, and `other` that fraction without
    this process. `disk_read`, `disk_write` (this process, at the device), `io_read`, `io_write`
    (this process, out of caches and pipes too) and `network_sent`, `network_received` (the whole
    machine, or the container that has a network of its own) are bytes per second, None where the
    system does not tell. `cost` is the sampler's own CPU time over wall time.
    """

    interval: float
    duration: float
    calls: int
    cores: Use
    core_count: int
    machine: Use | None
    other: float | None
    rss: Use | None
    cost: float
    disk_read: float | None = None
    disk_write: float | None = None
    io_read: float | None = None
    io_write: float | None = None
    network_sent: float | None = None
    network_received: float | None = None
    gpus: tuple[GpuUse, ...] = ()
    samples: tuple[SystemSample, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()
    how: How = "measured"
