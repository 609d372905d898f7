"""Use of the machine while the model runs, sampled beside it in a phase of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from torchgauge.clock import Clock, SystemClock
from torchgauge.device.cores import cores_granted
from torchgauge.device.gpu_metrics import GpuMetrics, GpuReading, NoGpu
from torchgauge.device.load import machine_times, process_time
from torchgauge.measure.flows import flows
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.system import GpuSample, GpuUse, System, SystemSample, Use
from torchgauge.signals import restoring

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
        self._process = psutil.Process()
        self._done = threading.Event()

    def run(self) -> None:
        """Sample until told to stop, and once more for what is left then, unless it is little."""
        start = last = time.perf_counter()
        spent, flowed = process_time(self._process), flows(self._process)
        total, busy, _ = machine_times()
        finished = False
        while not finished:
            finished = self._done.wait(self.interval)
            now = time.perf_counter()
            # The kernel counts time in ticks of 10 ms: of a short rest they would make any figure.
            if finished and self.samples and now - last < self.interval / 2:
                break
            used, (total_now, busy_now, _) = process_time(self._process), machine_times()
            cores = (used - spent) / (now - last)
            rss = self._process.memory_info().rss
            flowed_now = flows(self._process)
            rates: dict[str, Any] = flowed.rates(flowed_now, now - last)
            self.samples.append(SystemSample(time=now - start, cores=cores, rss=rss, **rates))
            if total_now > total:
                self.machine.append((busy_now - busy) / (total_now - total))
            for index, readings in self.readings.items():
                readings.append((now - start, self._gpus.read(index)))
            last, spent, busy, total, flowed = now, used, busy_now, total_now, flowed_now
        self.cpu_seconds = time.thread_time()

    def stop(self) -> None:
        """Take the last sample and end."""
        self._done.set()
        self.join()


@restoring
def _running(sampler: Sampler) -> Iterator[None]:
    sampler.start()
    try:
        yield
    finally:
        sampler.stop()


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
    process = psutil.Process()
    flowed = flows(process)
    spent, (total, busy, _) = process_time(process), machine_times()
    sampler = Sampler(interval, gpus)
    start = clock.now()
    calls = 0
    with _running(sampler):
        while calls == 0 or (clock.now() - start) * 1e-9 < duration:
            call()
            calls += 1
    seconds = (clock.now() - start) * 1e-9
    rates: dict[str, Any] = flowed.rates(flows(process), seconds)
    spent_after, (total_after, busy_after, _) = process_time(process), machine_times()
    ours, all_busy = spent_after - spent, busy_after - busy
    machine = max(total_after - total, 1e-9)
    return System(
        interval=interval,
        duration=seconds,
        calls=calls,
        cores=Use(mean=ours / seconds, max=max(s.cores for s in sampler.samples)),
        core_count=cores_granted(),
        machine=_use(sampler.machine) or Use(mean=all_busy / machine, max=all_busy / machine),
        other=min(max(all_busy - ours, 0.0) / machine, 1.0),
        rss=Use(
            mean=sum(s.rss for s in sampler.samples) / len(sampler.samples),
            max=max(s.rss for s in sampler.samples),
        ),
        cost=sampler.cpu_seconds / seconds,
        **rates,
        gpus=tuple(_gpu(i, gpus.names[i], found) for i, found in sampler.readings.items()),
        samples=tuple(sampler.samples),
        warnings=_warnings(gpus),
    )


def _warnings(gpus: GpuMetrics) -> tuple[MeasurementWarning, ...]:
    if not gpus.absent:
        return ()
    message = f"The use of the GPU is not known. {gpus.absent}"
    return (MeasurementWarning(id="gpu-metrics-absent", message=message, probe="system"),)


def _use(values: list[float]) -> Use | None:
    return Use(mean=sum(values) / len(values), max=max(values)) if values else None


def _gpu(index: int, name: str, timed: list[tuple[float, GpuReading]]) -> GpuUse:
    readings = [reading for _, reading in timed]
    settled = [reading for at, reading in timed if at > GPU_SETTLING]
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
        throttled=tuple(dict.fromkeys(r for some in reasons for r in some)) if reasons else None,
        samples=tuple(_gpu_sample(at, reading) for at, reading in timed),
    )


def _gpu_sample(at: float, reading: GpuReading) -> GpuSample:
    return GpuSample(
        time=at,
        utilization=reading.utilization if at > GPU_SETTLING else None,
        memory=reading.memory,
        power=reading.power,
        clock=reading.clock,
    )
