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
    """Use of one GPU during the run.

    Attributes:
        utilization: A fraction.
        memory: Bytes in use by all processes, not by this one alone.
        power: Watts.
        temperature: °C.
        clock: Hertz.
        throttled: The driver's reasons for reduced clocks in any sample; None if it gave no answer.
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
    """One reading of the machine; rates are bytes per second since the last reading, as in System.

    Attributes:
        time: Seconds from the start.
        cores: Cores in use by the process.
        rss: Resident bytes of the process.
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
    """Use of the machine during steady calls; a figure that the system does not provide is None.

    Attributes:
        interval: Seconds from one sample to the next.
        duration: Seconds of sampling.
        calls: Calls of the step in that time.
        cores: The process's CPU time over wall time.
        core_count: Cores that the process may use.
        machine: The fraction of all cores that was busy with any process.
        other: That fraction without this process.
        rss: Resident bytes of the process.
        cost: The sampler's own CPU time over wall time.
        disk_read: Bytes per second of this process at the device; `disk_write` likewise.
        io_read: Bytes per second of this process, caches and pipes included; `io_write` likewise.
        network_sent: Bytes per second of the whole machine, or of a container with its own network;
            `network_received` likewise.
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
