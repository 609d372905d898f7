"""Whether the interval of one process's run holds what other runs measure."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpu_rows.line import Line, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine

GOAL = 0.85
# Fewer runs show nothing of a share.
FEWEST = 4


class Measured(NamedTuple):
    """What one run says: the median, and the ends of its headline interval, in seconds.

    None where it has none, or one that covers the calls of its own process alone.
    """

    median: float
    low: float | None = None
    high: float | None = None


def held(runs: Sequence[Measured]) -> int:
    """Count the runs whose interval holds the median of the other runs' medians."""
    count = 0
    for number, run in enumerate(runs):
        truth = statistics.median(other.median for at, other in enumerate(runs) if at != number)
        count += run.low is not None and run.high is not None and run.low <= truth <= run.high
    return count


def once(machine: Machine, name: str) -> Measured:
    """Measure one model with the defaults."""
    import torchgauge as tg

    placement = machine.model(name)
    # A trial has no time for the default's precision.
    options = {"iterations": 20} if machine.tiny else {}
    found = tg.measure_latency(placement.model, placement.inputs, progress=False, **options)
    interval = found.interval
    if interval is None or found.interval_scope == "process":
        return Measured(found.median)
    return Measured(found.median, interval.low, interval.high)


def lines(machine: Machine, file: Path | None = None) -> Iterator[Line]:
    """Yield how many of the intervals so far hold the median of the others.

    Each row measures once, in a process of its own, and a file of the machine's state has the runs.
    """
    name = "pretended" if machine.pretended else "intervals"
    file = file or Path(os.environ["TORCHGAUGE_STATE"]) / f"{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as appended:
        appended.write(json.dumps(once(machine, "ResNet-50")) + "\n")
    yield counted(
        "ResNet-50", [Measured(*json.loads(run)) for run in file.read_text().splitlines()]
    )


def counted(name: str, runs: Sequence[Measured]) -> Line:
    """Return the line of some runs."""
    medians = [run.median for run in runs]
    widths = [(run.high - run.low) / run.median for run in runs if run.low and run.high]
    without = len(runs) - len(widths)
    count = held(runs) if len(runs) > 1 else 0
    return judged(
        name,
        f"{count} of {len(runs)} intervals hold the median of the others",
        f"medians spread by {max(medians) / min(medians) - 1:.2%}"
        + (f", intervals are {statistics.median(widths):.2%} wide" if widths else ""),
        goal=f"≥ {GOAL:.0%} of {FEWEST} or more",
        # An interval that is not claimed is not wrong.
        met=None if not widths or len(runs) < FEWEST else count / len(runs) >= GOAL,
        note=f"{without} runs claim no interval" if without else "",
        held=count,
        runs=len(runs),
        spread=max(medians) / min(medians) - 1,
    )
