"""Whether the interval of one process holds what other processes measure."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from gpu_rows.line import Line, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine

PROCESSES = 10
# Seconds after which no further process is begun: what is known by then is told.
LONGEST = 140.0
GOAL = 0.85


class Measured(NamedTuple):
    """What one process says: the median, and its headline interval in seconds.

    None where there is none, or where it is said to hold within the process alone.
    """

    median: float
    interval: tuple[float, float] | None


def held(runs: Sequence[Measured]) -> int:
    """Count the runs whose interval holds the median of the other runs' medians."""
    count = 0
    for number, run in enumerate(runs):
        others = [other.median for at, other in enumerate(runs) if at != number]
        truth = statistics.median(others)
        count += run.interval is not None and run.interval[0] <= truth <= run.interval[1]
    return count


def once(machine: Machine, name: str) -> Measured:
    """Measure one model with the defaults, in this process."""
    import torchgauge as tg

    placement = machine.model(name)
    # A trial has no time for the default's precision.
    options = {"iterations": 20} if machine.tiny else {}
    found = tg.measure_latency(placement.model, placement.inputs, progress=False, **options)
    interval = found.interval
    if interval is None or interval.scope == "process":
        return Measured(found.median, None)
    return Measured(found.median, (interval.low, interval.high))


def lines(machine: Machine) -> Iterator[Line]:
    """Yield how many of ten fresh processes' intervals hold the median of the other nine."""
    name, context = "ResNet-50", multiprocessing.get_context("spawn")
    runs: list[Measured] = []
    end = time.monotonic() + LONGEST
    while len(runs) < machine.few(PROCESSES) and (len(runs) < 2 or time.monotonic() < end):
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            runs.append(pool.submit(once, machine, name).result())
    yield counted(name, runs)


def counted(name: str, runs: Sequence[Measured]) -> Line:
    """Return the line of some runs."""
    medians = [run.median for run in runs]
    widths = [(run.interval[1] - run.interval[0]) / run.median for run in runs if run.interval]
    without = len(runs) - len(widths)
    share = held(runs) / len(runs)
    return judged(
        name,
        f"{held(runs)} of {len(runs)} intervals hold the median of the others",
        f"medians spread by {max(medians) / min(medians) - 1:.2%}"
        + (f", intervals are {statistics.median(widths):.2%} wide" if widths else ""),
        goal=f"≥ {GOAL:.0%}",
        # An interval that is not claimed is not wrong.
        met=None if without == len(runs) else share >= GOAL,
        note=f"{without} runs claim no interval" if without else "",
        held=held(runs),
        runs=len(runs),
        spread=max(medians) / min(medians) - 1,
    )
