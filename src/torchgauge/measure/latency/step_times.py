"""The times of a few steps in a row, once what came before them has settled."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

from torchgauge.measure.step import Step

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
