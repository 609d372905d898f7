"""The lines probe: in which lines of the user's Python the time between operators is lost.

The step repeats under a recording of its own while a timer samples the running line: the recording
says when operators ran and in which layer, the samples say in which line Python was between them.
It tells lines of the main thread in inference and forward passes, loss functions and what is around
them. Python inside of an operator (a custom autograd function's backward, a compiled region) is
that operator's time. A line that calls an operator has the time until the operator begins; what
follows it (freeing what the line replaced) may be told as the next line's, since Python looks at
signals between some instructions only. `LineTime.samples` says how sure a figure is: of n samples
the error is about 1/√n.
"""

from __future__ import annotations

import linecache
import os
import statistics
import threading
from time import perf_counter_ns

import msgspec
import numpy as np

from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.line_times import Samples, Spot, line_times, own_times
from torchgauge.device.select import open_device
from torchgauge.measure.lines.line_samples import LineSamples, sources_of
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.recording import record
from torchgauge.measure.step import prepared
from torchgauge.measure.timeline.ranges import STEP, Ranges, step_range
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.timeline.tree import LineTime, Pass, Tree
from torchgauge.records.trace.events import ABSENT, Events, Integers
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Training

SECONDS = 2.0
SAMPLES = 2000
SPANS = 100_000  # recorded at most, some 40 MB
SHORTEST, LONGEST = 100_000, 1_000_000  # ns between samples


def measure(
    placement: Placement, tree: Tree, *, train: Training | None = None
) -> tuple[tuple[LineTime, ...], Pass]:
    """Return the lines' times in a step of `tree`, most first, and what sampling them cost.

    Raises MeasurementError `lines-unavailable`, and as `recording.record` does.
    """
    first = tree.passes[0]
    steps, interval = _plan(
        first.bare or 0.0, sum(own_times(tree).values()), sum(r.calls for r in tree.rows)
    )
    sampler = LineSamples(interval, sources_of(placement.model))
    begins: list[int] = []
    with open_device(placement.device).current(), prepared(placement, train) as step:
        modules = Modules(placement.model)
        layers = CallTree(modules.table, modules.name)
        ranges = Ranges(placement.model, modules, step.threads)

        def work() -> None:
            step()
            with sampler.sampling():
                for number in range(steps):
                    begins.append(perf_counter_ns())
                    with step_range(number):
                        step()
                    modules.forget_gone()

        with ranges.marking():
            events = read_events(record(work, device=placement.device))
    spans = attribute(events, layers)
    is_step = events.name.take(spans.row).where(lambda name: name.startswith(STEP))
    starts, durations = spans.nesting.start[is_step], spans.nesting.total_time[is_step]
    samples = _aligned(sampler, events, np.array(begins), starts)
    times = line_times(samples, spans, is_step, layers, tree, _source)
    duration = statistics.median(durations.tolist()) * 1e-9
    return times, msgspec.structs.replace(first, name="lines", steps=steps, duration=duration)


def _plan(step: float, own: int, spans: int) -> tuple[int, int]:
    """Return how many steps, and the ns between samples.

    `own` is what Python takes of a step outside of operators, in ns: there the samples are wanted.
    """
    steps = max(1, min(int(SECONDS / max(step, 1e-9)), SPANS // max(spans, 1)))
    return steps, min(max(steps * own // SAMPLES, SHORTEST), LONGEST)


def _aligned(sampler: LineSamples, events: Events, begins: Integers, starts: Integers) -> Samples:
    """Return the samples in the recording's time: a step's range begins right after its stamp."""
    ahead = int((np.sort(starts) - begins).min())
    due_times, taken_times, spots = (
        zip(*sampler.samples, strict=True) if sampler.samples else ((), (), ())
    )
    this_thread = (os.getpid(), threading.get_native_id())
    threads = events.thread.values
    return Samples(
        np.array(due_times, np.int64) + ahead,
        np.array(taken_times, np.int64) + ahead,
        spots,
        sampler.interval,
        threads.index(this_thread) if this_thread in threads else ABSENT,
    )


def _source(spot: Spot) -> str:
    return linecache.getline(spot.file, spot.line).strip()
