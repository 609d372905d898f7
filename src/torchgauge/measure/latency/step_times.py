"""The times of a few steps in a row, once what came before them has settled."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from torchgauge import units
from torchgauge.device.load import Load
from torchgauge.measure.step import Step
from torchgauge.records.record import MeasurementWarning

# A tenth of the machine in other hands moves a median that is known to ±1 %.
MOST_OTHER = 0.10
MOST_STEAL = 0.01


def load_warnings(load: Load) -> Iterator[MeasurementWarning]:
    """Yield warnings of what made the samples slower or more scattered than the model is."""
    yield from other_load(load.other)
    if load.steal is not None and load.steal > MOST_STEAL:
        yield _warning(
            "steal-time",
            f"The hypervisor gave {units.percent(load.steal)} of the cores' time to others.",
            "Measure on a machine of its own, or in more processes over a longer time.",
        )
    if load.throttled:
        yield _warning(
            "throttled",
            f"Cores were slowed down for their heat {load.throttled} times meanwhile.",
            "Let the machine cool down, improve its cooling, or fix the clocks lower.",
        )
    if load.gpu_throttled:
        yield _warning(
            "gpu-throttled",
            f"The GPU's clocks were reduced: {', '.join(load.gpu_throttled)}.",
            "Check power limit and cooling, or fix the clocks (nvidia-smi -lgc).",
        )


def is_busy(share: float | None) -> bool:
    """Tell whether other processes took more than a tenth of the machine."""
    return share is not None and share > MOST_OTHER


def other_load(share: float | None, probe: str = "latency") -> Iterator[MeasurementWarning]:
    """Yield a warning where other processes took more than a tenth of the machine."""
    if share is not None and is_busy(share):
        yield _warning(
            "other-load",
            f"Other processes took {units.percent(share)} of the machine meanwhile.",
            "Stop them, or measure again on an idle machine.",
            probe,
        )


def _warning(id: str, message: str, remedy: str, probe: str = "latency") -> MeasurementWarning:
    return MeasurementWarning(id=id, message=message, remedy=remedy, probe=probe)


SHORT = 0.2  # seconds: longer steps settle within themselves
SETTLING = 0.05  # seconds
MOST_SETTLING = 8
MOST_TIMED = 4

Phases = dict[str, int]  # ns of each phase of a step
_T = TypeVar("_T")


def settled(step: Step, now: Callable[[], int], read: Callable[[], _T]) -> list[tuple[Phases, _T]]:
    """Return the times of steps in a row, and what `read` returned after each.

    Without the first ones: a new `__call__` empties Python's method caches, and a step of 0.7 ms
    was 4 to 7 % slower in the second after it than in the eighth. The shorter the steps, the more
    of them: up to 8 to settle, and up to 4 that are timed.
    """
    read()
    first = timed(step, now), read()
    seconds = length(first[0])
    if seconds >= SHORT:
        return [first]
    settling = max(1, min(MOST_SETTLING, int(SETTLING / max(seconds, 1e-9))))
    for _ in range(settling - 1):
        step()
        read()
    return [(timed(step, now), read()) for _ in range(min(settling, MOST_TIMED))]


def timed(step: Step, now: Callable[[], int]) -> Phases:
    """Run a step and return the ns of its phases."""
    marks: list[tuple[str, int]] = []
    step(lambda phase: marks.append((phase, now())))
    return {phase: end - start for (phase, start), (_, end) in itertools.pairwise(marks)}


def length(step: Phases) -> float:
    """Return the seconds of a step."""
    return sum(step.values()) * 1e-9


def median_length(steps: Sequence[Phases]) -> float:
    """Return the median of the steps' seconds."""
    return statistics.median(map(length, steps))
