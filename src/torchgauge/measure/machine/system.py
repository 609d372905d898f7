"""Use of the machine while the model runs, sampled beside it in a phase of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torchgauge.clock import Clock, SystemClock
from torchgauge.device import counters
from torchgauge.device.counters import MachineTimes, machine_times, own_time, resident
from torchgauge.device.cpu import cores_granted
from torchgauge.device.load import GpuMetrics, GpuReading, NoGpu
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.system import GpuSample, GpuUse, System, SystemSample, Use
from torchgauge.signals import started

INTERVAL = 0.05
DURATION = 0.5
# The driver averages utilisation over up to a second, so the first one tells of the time before.
GPU_DURATION = 3.0
GPU_SETTLING = 1.0


class Sampler(threading.Thread):
    """Reads the counters of this process, the machine and the GPU every `interval` seconds."""

    def __init__(self, interval: float, gpus: GpuMetrics) -> None:
        super().__init__(name="torchgauge-system", daemon=True)
        self.interval = interval
        self.samples: list[SystemSample] = []
        self.machine: list[float] = []
        self.readings: dict[int, list[tuple[float, GpuReading]]] = {i: [] for i in gpus.names}
        self.cpu_seconds = 0.0
        self._gpus = gpus
        self._done = threading.Event()

    def run(self) -> None:
        """Sample until told to stop, and once more for what is left then, unless it is little."""
        start = last = time.perf_counter()
        spent, flowed, times = own_time(), flows(), machine_times()
        finished = False
        while not finished:
            finished = self._done.wait(self.interval)
            now = time.perf_counter()
            # The kernel counts time in ticks of 10 ms: of a short rest they would make any figure.
            if finished and self.samples and now - last < self.interval / 2:
                break
            used, flowed_now, times_now = own_time(), flows(), machine_times()
            cores = (used - spent) / (now - last)
            rates: dict[str, Any] = flowed.rates(flowed_now, now - last)
            sample = SystemSample(time=now - start, cores=cores, rss=resident(), **rates)
            self.samples.append(sample)
            if (share := _busy(times, times_now)) is not None:
                self.machine.append(share)
            for index, readings in self.readings.items():
                readings.append((now - start, self._gpus.read(index)))
            last, spent, times, flowed = now, used, times_now, flowed_now
        self.cpu_seconds = time.thread_time()

    def stop(self) -> None:
        """Take the last sample and end."""
        self._done.set()
        self.join()


def measure(
    call: Callable[[], object],
    *,
    gpus: GpuMetrics | None = None,
    duration: float | None = None,
    interval: float = INTERVAL,
    clock: Clock | None = None,
) -> System:
    """Call the model for `duration` seconds (once at least) and return the use of the machine.

    Without `duration` it is 0.5 s, and 3 s where a GPU is read.
    """
    gpus, clock = gpus or NoGpu(), clock or SystemClock()
    if duration is None:
        duration = GPU_DURATION if gpus.names else DURATION
    flowed, spent, times = flows(), own_time(), machine_times()
    sampler = Sampler(interval, gpus)
    # Not in ticks as `spent`, of which a short run on a busy machine has none.
    start, used = clock.now(), time.process_time()
    calls = 0
    with started(sampler):
        while calls == 0 or (clock.now() - start) * 1e-9 < duration:
            call()
            calls += 1
    seconds, used = (clock.now() - start) * 1e-9, time.process_time() - used
    rates: dict[str, Any] = flowed.rates(flows(), seconds)
    own_seconds, times_after = own_time() - spent, machine_times()
    machine_share = _busy(times, times_after)
    return System(
        interval=interval,
        duration=seconds,
        calls=calls,
        cores=Use(mean=used / seconds, max=max(s.cores for s in sampler.samples)),
        core_count=cores_granted(),
        machine=_use(sampler.machine or [share for share in (machine_share,) if share is not None]),
        other=_busy(times, times_after, own_seconds),
        rss=_use([sample.rss for sample in sampler.samples if sample.rss is not None]),
        cost=sampler.cpu_seconds / seconds,
        **rates,
        gpus=tuple(_gpu(i, gpus.names[i], timed) for i, timed in sampler.readings.items()),
        samples=tuple(sampler.samples),
        warnings=_warnings(gpus),
    )


def _warnings(gpus: GpuMetrics) -> tuple[MeasurementWarning, ...]:
    if not gpus.absent:
        return ()
    message = f"The use of the GPU is not known. {gpus.absent}"
    return (MeasurementWarning(id="gpu-metrics-absent", message=message, probe="system"),)


def _busy(
    before: MachineTimes | None, after: MachineTimes | None, own_seconds: float = 0.0
) -> float | None:
    """Return the share of all cores' time that was busy, without `own_seconds` of it.

    None where the system does not tell, or its clock has not ticked.
    """
    if before is None or after is None or after.total <= before.total:
        return None
    return min(max(after.busy - before.busy - own_seconds, 0.0) / (after.total - before.total), 1.0)


def _use(values: Sequence[float]) -> Use | None:
    return Use(mean=sum(values) / len(values), max=max(values)) if values else None


def _gpu(index: int, name: str, timed: list[tuple[float, GpuReading]]) -> GpuUse:
    readings = [reading for _, reading in timed]
    settled = [reading for elapsed, reading in timed if elapsed > GPU_SETTLING]
    reasons = [r.throttled for r in readings if r.throttled is not None]

    def use(field: str, among: list[GpuReading] = readings) -> Use | None:
        return _use([value for r in among if (value := getattr(r, field)) is not None])

    return GpuUse(
        index=index,
        name=name,
        utilization=use("utilization", settled),
        memory=use("memory"),
        power=use("power"),
        temperature=use("temperature"),
        clock=use("clock"),
        throttled=tuple(dict.fromkeys(r for reason_group in reasons for r in reason_group))
        if reasons
        else None,
        samples=tuple(_gpu_sample(elapsed, reading) for elapsed, reading in timed),
    )


def _gpu_sample(elapsed: float, reading: GpuReading) -> GpuSample:
    return GpuSample(
        time=elapsed,
        utilization=reading.utilization if elapsed > GPU_SETTLING else None,
        memory=reading.memory,
        power=reading.power,
        clock=reading.clock,
    )


class Flows(NamedTuple):
    """Bytes since some time in the past; None where the system does not report it.

    `disk_…` are this process's at the device, `io_…` what it asked to read and write, out of caches
    and pipes too (Linux). `network_…` are of all processes on the machine, or in the container that
    has a network of its own: no system tells them by process.
    """

    disk_read: int | None = None
    disk_write: int | None = None
    io_read: int | None = None
    io_write: int | None = None
    network_sent: int | None = None
    network_received: int | None = None

    def rates(self, later: Flows, seconds: float) -> dict[str, float | None]:
        """Return bytes per second until a later reading, by name."""
        return {
            name: None if before is None or after is None else max(after - before, 0) / seconds
            for name, before, after in zip(self._fields, self, later, strict=True)
        }


def flows() -> Flows:
    """Read the counters."""
    sent, received = counters.network()
    own = counters.own_io()
    return Flows(
        disk_read=getattr(own, "read_bytes", None),
        disk_write=getattr(own, "write_bytes", None),
        io_read=getattr(own, "read_chars", None),
        io_write=getattr(own, "write_chars", None),
        network_sent=sent,
        network_received=received,
    )
