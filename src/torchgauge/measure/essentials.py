"""A profile of latency, memory and work alone, for the cells of a sweep."""

from __future__ import annotations

import dataclasses
import time

from torchgauge.analyze.latency.training_phases import throughput
from torchgauge.device.environment import environment
from torchgauge.measure.description import describe
from torchgauge.measure.forward import opened
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.memory import memory as memory_probe
from torchgauge.measure.plan import measure_latency
from torchgauge.measure.runner import Runner
from torchgauge.measure.work.count import measure_cost
from torchgauge.progress import Silent
from torchgauge.records.profile import ProbeRun, Profile
from torchgauge.targets.builds.source import Source


def measure(source: Source, options: LatencyOptions) -> Profile:
    """Load the target and return a profile of latency, memory and work.

    Raises as `plan.profile` does.
    """
    with Interrupts() as interrupts:
        runner = Runner(Silent(), interrupts)
        if options.several:  # this is one of several processes already
            options = dataclasses.replace(options, processes=1)
        start = time.perf_counter()
        with interrupts.allowed():
            placement = opened(source)
        runner.passes.append(ProbeRun(probe="loading", duration=time.perf_counter() - start))
        latency = runner.attempt(
            "latency", lambda: measure_latency(source, options, Silent(), placement=placement)
        )
        memory, cost = None, None
        if latency is not None:  # or it ended there, maybe for want of memory
            memory = runner.attempt("memory", lambda: memory_probe.measure(placement))
            cost = runner.attempt("cost", lambda: measure_cost(placement, backward=False))
        description = describe(placement, training=False)
        return Profile(
            target=description,
            environment=environment(),
            latency=latency,
            throughput=None if latency is None else throughput(latency, description),
            memory=memory,
            cost=cost,
            passes=tuple(runner.passes),
            interrupted=runner.interrupted or interrupts.noted,
            warnings=tuple(runner.warnings),
        )
