"""Energy of a call from readings of counters that step, wrap around and may be reset."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from torchgauge.imports import imported
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.work.energy import Energy, EnergyCounter, EnergyPart

# More than a processor's package or its memory takes; a fall that would mean more is a reset.
MOST_POWER = 2000.0  # watts
SHORTEST_WINDOW = 0.5  # seconds
# Steps of the slowest counter in a window: what one step is off at its ends is then below 5 %.
STEPS = 20
FEWEST_WINDOWS = 5


class CounterReadings(NamedTuple):
    """What one counter was read to be, in joules: before the windows, and after each.

    `range` is where it begins again at zero; None of one that never does. `idle` is its power in
    watts before the calls.
    """

    name: str
    part: EnergyPart
    reason: str = ""
    range: float | None = None
    idle: float | None = None
    resolution: float | None = None
    period: float | None = None
    values: tuple[float, ...] = ()


class Consumed(NamedTuple):
    """Joules between two readings; None where the counter was reset, or may have wrapped twice."""

    joules: float | None
    wrapped: bool = False


def consumed(before: float, after: float, seconds: float, limit: float | None) -> Consumed:
    """Return the joules between two readings of a counter that wraps around at `limit`."""
    if _may_wrap_twice(seconds, limit):
        return Consumed(None)
    if after >= before:
        return Consumed(after - before)
    if limit is None:
        return Consumed(None)
    joules = after + limit - before
    plausible = 0 <= joules <= MOST_POWER * max(seconds, 1e-3)
    return Consumed(joules, wrapped=True) if plausible else Consumed(None)


def _may_wrap_twice(seconds: float, limit: float | None) -> bool:
    """Return whether a counter may have come round to where it was, unseen."""
    return limit is not None and seconds * MOST_POWER >= limit


def window_length(periods: Sequence[float]) -> float:
    """Return the seconds of calls between two readings, by how often the counters step."""
    return max(SHORTEST_WINDOW, STEPS * max(periods, default=0.0))


def energy(
    readings: Sequence[CounterReadings],
    times: Sequence[float],
    calls: Sequence[int],
    *,
    own: EnergyPart,
    samples: int | None = None,
    tokens: int | None = None,
) -> Energy:
    """Return the energy of a call; `own` is the part that runs it.

    Without one of these the energy is unknown; without one of the others it is a lower bound.
    """
    counters = tuple(_counter(reading, times, calls) for reading in readings)
    own_counters = [counter for counter in counters if counter.part == own]
    unread = next((counter for counter in own_counters if counter.joules is None), None)
    if unread is not None or not own_counters:
        reason = "No counter of it was found." if unread is None else unread.reason
        return Energy(
            counters=counters, reason=reason, window_times=tuple(times), window_calls=tuple(calls)
        )
    if not _read_together(counters, times):  # what is read in other windows is left out
        reason = "It was not read in the windows in which the others were."
        counters = tuple(
            counter
            if counter.part == own or counter.joules is None
            else msgspec.structs.replace(counter, joules=None, reason=reason)
            for counter in counters
        )
    read = [counter for counter in counters if counter.joules is not None]
    counted = _read_together(read, times)
    call_count, seconds = sum(calls[n] for n in counted), sum(times[n] for n in counted)
    if not counted or not call_count:
        return Energy(counters=counters, reason="No window has readings of all counters.")
    total = math.fsum(c.windows[n] or 0.0 for c in read for n in counted)
    joules, idle = total / call_count, [counter.idle_power for counter in read]
    result = Energy(
        joules=joules,
        at_least=len(read) < len(counters),
        above_idle=None
        if None in idle
        else joules - math.fsum(filter(None, idle)) * seconds / call_count,
        power=total / seconds if seconds else None,
        per_sample=joules / samples if samples else None,
        per_token=joules / tokens if tokens else None,
        calls=call_count,
        duration=seconds,
        window_times=tuple(times),
        window_calls=tuple(calls),
        counters=counters,
        warnings=tuple(_warnings(counters, readings, times)),
    )
    return _with_interval(result, read)


def _read_together(counters: Sequence[EnergyCounter], times: Sequence[float]) -> list[int]:
    """Return the windows in which every counter that is read was read."""
    read = [counter.windows for counter in counters if counter.joules is not None]
    return [n for n in range(len(times)) if all(windows[n] is not None for windows in read)]


def _counter(
    reading: CounterReadings, times: Sequence[float], calls: Sequence[int]
) -> EnergyCounter:
    counter = EnergyCounter(name=reading.name, part=reading.part, reason=reading.reason)
    if reading.reason:
        return counter
    steps = [
        consumed(before, after, seconds, reading.range)
        for before, after, seconds in zip(reading.values, reading.values[1:], times, strict=False)
    ]
    consumptions = [
        (s.joules, n) for s, n in zip(steps, calls, strict=False) if s.joules is not None
    ]
    call_count = sum(n for _, n in consumptions)
    joules = math.fsum(j for j, _ in consumptions)
    reason = ""
    if not call_count:
        too_long = [_may_wrap_twice(seconds, reading.range) for seconds in times]
        reason = "It was reset in every window."
        if any(too_long):
            reason = "A call takes so long that the counter may wrap around more than once."
        if any(too_long) and not all(too_long):
            reason = "It was reset in some windows, and may have wrapped twice in the others."
    elif joules == 0:
        reason = "It did not move during the calls."
    return EnergyCounter(
        name=reading.name,
        part=reading.part,
        joules=None if reason else joules / call_count,
        idle_power=reading.idle,
        resolution=reading.resolution,
        period=reading.period,
        windows=tuple(step.joules for step in steps),
        wraps=sum(step.wrapped for step in steps),
        reason=reason,
    )


def _with_interval(result: Energy, read: Sequence[EnergyCounter]) -> Energy:
    """Return it with an interval over the windows, no narrower than a step at each end."""
    by_window = result.by_window
    if result.joules is None or len(by_window) < 3:
        return result
    student = float(imported("scipy.special").stdtrit(len(by_window) - 1, 0.975))
    half = student * statistics.stdev(by_window) / math.sqrt(len(by_window))
    # Readings of windows that follow one another share the step at their ends.
    steps = math.fsum(
        (counter.period or 0.0) * counter.joules / result.duration
        for counter in read
        if counter.joules is not None
    )
    half = max(half, steps)
    interval = Interval(
        low=max(result.joules - half, 0.0), high=result.joules + half, scope="process"
    )
    return msgspec.structs.replace(result, interval=interval)


def _warnings(
    counters: Sequence[EnergyCounter], readings: Sequence[CounterReadings], times: Sequence[float]
) -> Iterator[MeasurementWarning]:
    for counter, reading in zip(counters, readings, strict=True):
        too_long = sum(_may_wrap_twice(seconds, reading.range) for seconds in times)
        resets = max(0, sum(joules is None for joules in counter.windows) - too_long)
        if counter.reason:
            message = f"The energy of {counter.name} is not known: {counter.reason}"
            yield MeasurementWarning(id="energy-counter-unknown", message=message, probe="energy")
            continue
        causes = {
            "energy-counter-reset": (resets, "was reset"),
            "energy-counter-wrapped": (too_long, "may have wrapped around more than once"),
        }
        for cause, (count, event) in causes.items():
            message = f"The counter of {counter.name} {event} in {count} windows, left out."
            if count:
                yield MeasurementWarning(id=cause, message=message, probe="energy")
