"""The energy probe: counters read around windows of calls, long enough for their resolution."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torchgauge.analyze.work import energy as analysis
from torchgauge.analyze.work.energy import CounterReadings, consumed
from torchgauge.clock import Clock, SystemClock
from torchgauge.device.cpu import SystemFiles
from torchgauge.device.energy import Counter, energy_counters
from torchgauge.device.select import open_device
from torchgauge.measure.step import guarded, prepared
from torchgauge.records.work.energy import Energy, EnergyPart
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.runtime_model import check_host
from torchgauge.targets.training.training import Training

IDLE = 1.0  # seconds without calls
POLLED = 1.0  # seconds, at most, to see how a counter steps
STEPS = 8
PRECISE = 0.01  # half the interval over the value
LONGEST = 30.0  # seconds of windows
STILL = "It did not move within a second."


def measure(placement: Placement, train: Training | None = None) -> Energy:
    """Return the energy of a placed target's call.

    Raises what the call raises; MeasurementError `provider-unread`.
    """
    check_host(placement.model, "energy")
    device, target = open_device(placement.device), placement.target
    synchronize = guarded(device.synchronize, device.name)
    with device.current(), prepared(placement, train) as step:

        def call() -> None:
            step()
            synchronize()

        return of_calls(call, placement.device, samples=target.batch, tokens=target.tokens)


def of_calls(
    call: Callable[[], object],
    device: str,
    *,
    samples: int | None = None,
    tokens: int | None = None,
    files: SystemFiles | None = None,
    clock: Clock | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> Energy:
    """Return the energy of a call that is over when it returns, on a device.

    `samples` and `tokens` are how many it has. Raises MissingExtraError, and what the call raises.
    """
    own: EnergyPart = "gpu" if device.startswith("cuda") else "package"
    with energy_counters(device, files) as counters:
        return _Measurement(counters, own, samples, tokens, clock, sleep).run(call)


class _Stepping(NamedTuple):
    """How a counter moves: joules of a step, seconds between steps; None where it does not."""

    resolution: float | None
    period: float | None


class _Measurement:
    def __init__(
        self,
        counters: Sequence[Counter],
        own: EnergyPart,
        samples: int | None,
        tokens: int | None,
        clock: Clock | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._counters, self._own = counters, own
        self._samples, self._tokens = samples, tokens
        self._now, self._sleep = (clock or SystemClock()).now, sleep

    def run(self, call: Callable[[], object]) -> Energy:
        """Watch the counters alone, then call in windows until the interval is narrow."""
        readings = [CounterReadings(c.name, c.part, c.reason, c.range) for c in self._counters]
        if not any(c.part == self._own and c.read is not None for c in self._counters):
            return self._result(readings, [], [])
        call()
        readings = self._watched(readings)
        length = analysis.window_length([r.period for r in readings if r.period is not None])
        times: list[float] = []
        calls: list[int] = []
        before = self._now()
        readings = self._read(readings)
        while True:
            count, end = 0, before + round(length * 1e9)
            while count == 0 or self._now() < end:
                call()
                count += 1
            readings, after = self._read(readings), self._now()
            times.append((after - before) * 1e-9)
            calls.append(count)
            before = after
            result = self._result(readings, times, calls)
            if self._enough(result, times):
                return result

    def _result(
        self, readings: list[CounterReadings], times: list[float], calls: list[int]
    ) -> Energy:
        return analysis.energy(
            readings, times, calls, own=self._own, samples=self._samples, tokens=self._tokens
        )

    def _enough(self, result: Energy, times: Sequence[float]) -> bool:
        if sum(times) >= LONGEST:
            return True
        if len(times) < analysis.FEWEST_WINDOWS or result.interval is None or not result.joules:
            return len(times) >= analysis.FEWEST_WINDOWS and result.joules is None
        return result.interval.half_width <= PRECISE * result.joules

    def _watched(self, readings: list[CounterReadings]) -> list[CounterReadings]:
        """Return what the counters do while the process sleeps, and how they step."""
        start, before = self._now(), self._read(readings)
        self._sleep(IDLE)
        after = self._read(before)
        seconds = (self._now() - start) * 1e-9
        watched = []
        for reading, counter in zip(after, self._counters, strict=True):
            if reading.reason:
                watched.append(reading)
                continue
            joules = consumed(reading.values[0], reading.values[1], seconds, reading.range).joules
            try:
                stepping = self._stepping(counter)
            except Exception as error:  # noqa: BLE001 - as when it is read
                watched.append(_unreadable(reading, error))
                continue
            watched.append(
                reading._replace(
                    idle=None if joules is None else joules / seconds,
                    resolution=stepping.resolution,
                    period=stepping.period,
                    reason=STILL if stepping.period is None else "",
                    values=(),
                )
            )
        return watched

    def _stepping(self, counter: Counter) -> _Stepping:
        if counter.read is None:
            return _Stepping(None, None)
        start, last = self._now(), counter.read()
        changes: list[float] = []
        times: list[int] = []
        while len(times) < STEPS and self._now() - start < POLLED * 1e9:
            value = counter.read()
            if value != last:
                times.append(self._now())
                changes.append(value - last)
                last = value
        rises = [change for change in changes if change > 0]
        if not rises:
            return _Stepping(None, None)
        gaps = [(b - a) * 1e-9 for a, b in itertools.pairwise(times)]
        return _Stepping(min(rises), statistics.median(gaps) if gaps else POLLED)

    def _read(self, readings: list[CounterReadings]) -> list[CounterReadings]:
        """Return the readings with one more value of each counter that can still be read."""
        return [
            reading if reading.reason or counter.read is None else _read(reading, counter.read)
            for reading, counter in zip(readings, self._counters, strict=True)
        ]


def _read(reading: CounterReadings, read: Callable[[], float]) -> CounterReadings:
    try:
        return reading._replace(values=(*reading.values, read()))
    except Exception as error:  # noqa: BLE001 - a driver that was unloaded: of any class
        return _unreadable(reading, error)


def _unreadable(reading: CounterReadings, error: Exception) -> CounterReadings:
    return reading._replace(reason=f"It could no longer be read: {error}.")
