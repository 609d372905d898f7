"""Which probe runs when, and in which process, so that none disturbs another.

Size runs nothing. Latency comes first of those that run the model, with nothing attached. The
system's use is sampled in a phase of its own, because the sampler is a load itself. Costs are
counted after what is timed. Memory and the timeline come late: they need torch's profiler, whose
libraries stay loaded. The machine's roofs come after them: they need memory of their own, and heat
the machine.
"""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from typing import NamedTuple

import msgspec

from torchgauge import units
from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.latency.training_phases import throughput
from torchgauge.analyze.timeline.launches import NamedSpans
from torchgauge.analyze.timeline.residual import with_headline_ratio
from torchgauge.analyze.work.roof_quality import implausible, of_each_call
from torchgauge.device.environment import environment
from torchgauge.device.load import gpu_metrics
from torchgauge.device.roofs import roofs as machine
from torchgauge.device.select import open_device
from torchgauge.measure.derived import bounds, judged, meta_device, phases
from torchgauge.measure.description import describe
from torchgauge.measure.forward import opened
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.latency.latency_runs import LatencyRuns, combined, latency_runs
from torchgauge.measure.lines import lines as lines_probe
from torchgauge.measure.machine import system as system_probe
from torchgauge.measure.memory import memory as memory_probe
from torchgauge.measure.processes.fork_server import ForkServer
from torchgauge.measure.runner import Runner
from torchgauge.measure.step import guarded, prepared
from torchgauge.measure.timeline import compilation as compilation_probe
from torchgauge.measure.timeline import eager_comparison as eager_probe
from torchgauge.measure.timeline import ranges as nvtx_probe
from torchgauge.measure.timeline import runtime_timeline
from torchgauge.measure.timeline import timeline as timeline_probe
from torchgauge.measure.timeline.timeline_options import TimelineOptions
from torchgauge.measure.work import energy as energy_probe
from torchgauge.measure.work import roofs as roofs_probe
from torchgauge.measure.work import sized
from torchgauge.measure.work.count import counted, what_ran
from torchgauge.measure.work.utilization import step_utilization
from torchgauge.progress import Progress
from torchgauge.records import rendering
from torchgauge.records.latency.latency import Latency
from torchgauge.records.profile import ProbeRun, Profile
from torchgauge.records.system import System
from torchgauge.records.timeline.compilation import Compilation
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.energy import Energy
from torchgauge.records.work.roofline import Roofs
from torchgauge.targets.builds.source import Source
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.runtime_model import on_host

# The share of the latency's time that is spent before the other probes; the rest comes after them.
FIRST_SHARE = 0.5


def profile(
    source: Source,
    options: LatencyOptions,
    progress: Progress,
    timeline: TimelineOptions | None = None,
    server: ForkServer | None = None,
    *,
    keep_going: bool = True,
) -> Profile:
    """Load the target, run every probe that applies, and return the record.

    `server` is what measuring processes are forked from, where one is there already.

    Raises what loading raises, and without `keep_going` what the first probe that runs the step
    raises; what another probe raises is a failed warning on the record. Ctrl-C while loading raises
    KeyboardInterrupt; later the record of what was measured is returned.
    """
    timeline = timeline or TimelineOptions()
    # What a later comparison of layers needs, where there is more than one process to tell it.
    layers = (options.processes or 1) > 1 and timeline.detail != "summary"
    options = dataclasses.replace(options, layers=layers)
    with Interrupts() as interrupts, latency_runs(source, options, progress, server) as runs:
        runner = Runner(progress, interrupts, keep_going=keep_going)
        return _measured(source, _loaded(source, runner), runs, options, runner, timeline)


def _measured(
    source: Source,
    placement: Placement,
    runs: LatencyRuns,
    options: LatencyOptions,
    runner: Runner,
    timeline: TimelineOptions,
) -> Profile:
    runner.progress.expect(_stages(placement, options, timeline))
    host_environment = environment()
    size = sized.measured(placement, runner)
    timed = _timed(runs, placement, options, runner, timeline.energy)
    training = options.train is not None
    cost = runner.attempt("cost", lambda: counted(source, placement, backward=training),
                          tells=False, essential=not placement.computes)  # fmt: skip
    memory = None if not placement.computes else runner.attempt(
        "memory", lambda: memory_probe.measure(placement, train=options.train))  # fmt: skip
    in_runtime = runtime_timeline.attempt(placement, runner, timeline)
    tree = _tree(placement, options, runner, timeline) if in_runtime is None else in_runtime.tree
    compilation = _compilation(placement, options, runner, timed, timeline)
    if timeline.nvtx and placement.computes:
        runner.attempt("nvtx", lambda: nvtx_probe.run(placement, train=options.train))
    steady = of_each_call(cost, tree)
    # The last processes come here, so that all of them are spread over the profile's time.
    latency = _last_runs(runs, placement, options, runner) if timed.measured else None
    roofs = _roofs(placement, steady, latency, runner, timeline)
    ran = runtime_timeline.work_that_ran(placement, steady, in_runtime)
    if tree is not None:
        tree = with_headline_ratio(judged(tree, ran, latency, roofs, host_environment), latency)
    divided = phases(latency, placement, options)
    size = sized.after_call(size, placement, runner)
    near, bound = bounds(placement, host_environment, ran, latency, tree, roofs, divided)
    runner.warnings += implausible(
        host_environment.machine, placement.device, steady, latency, tree
    )
    description = describe(placement, training=training)
    profile = Profile(
        target=description,
        environment=host_environment,
        size=size,
        cost=what_ran(source, placement, backward=training) if runner.forward_raised else cost,
        latency=latency,
        throughput=None if latency is None else throughput(latency, description),
        memory=memory,
        training=divided,
        utilization=step_utilization(placement, host_environment, steady, latency, roofs),
        system=timed.system,
        energy=timed.energy,
        roofline=near,
        bottleneck=bound,
        tree=tree,
        compilation=compilation,
        graph=runtime_timeline.facts(placement, in_runtime),
        passes=tuple(runner.passes),
        interrupted=runner.interrupted or runner.interrupts.noted,
        warnings=tuple(runner.warnings),
    )
    return msgspec.structs.replace(profile, findings=findings(profile))


def _stages(placement: Placement, options: LatencyOptions, timeline: TimelineOptions) -> int:
    """Return how many stages are to come; a target without values has its size and work alone."""
    if not placement.computes:
        return 2
    recorded = timeline.detail != "summary"
    # Size, latency, the machine's use, work and memory; then what is asked for.
    optional = recorded, timeline.lines, timeline.nvtx, options.several, timeline.measures_roofs
    return 5 + timeline.energy + sum(optional)


def _loaded(source: Source, runner: Runner) -> Placement:
    start = time.perf_counter()
    with runner.interrupts.allowed():
        runner.progress.start("loading")
        placement = opened(source)
    runner.passes.append(ProbeRun(probe="loading", duration=time.perf_counter() - start))
    return placement


class _Timed(NamedTuple):
    """What was measured with nothing attached; nothing on the meta device."""

    measured: bool = False
    system: System | None = None
    compilation: Compilation | None = None
    watch: compilation_probe.Watch | None = None
    energy: Energy | None = None


def _timed(
    runs: LatencyRuns, placement: Placement, options: LatencyOptions, runner: Runner, energy: bool
) -> _Timed:
    if not placement.computes:
        runner.warnings.append(meta_device())
        return _Timed()

    def first_runs() -> bool:
        runs.begin(placement)
        runs.measure_more(FIRST_SHARE)
        return True

    with compilation_probe.watching(placement.model) as watch:
        fresh = (options.processes or 1) > 1
        measured = bool(runner.attempt("latency", first_runs, fresh=fresh, essential=True))
        measured = measured or bool(runs.runs)
        if measured:
            runner.interrupted |= runs.runs[-1].stop == "interrupted"
            runner.heed(runs.failures)
            runner.progress.keep(units.time(runs.median, 3))
        system = runner.attempt("system", lambda: measure_system(placement, options))
    measure_energy = partial(energy_probe.measure, placement, options.train)
    joules = runner.attempt("energy", measure_energy) if energy else None
    return _Timed(measured, system, watch.result(), watch, joules)


def _last_runs(
    runs: LatencyRuns, placement: Placement, options: LatencyOptions, runner: Runner
) -> Latency:
    if runs.unfinished and not runner.interrupted:
        runner.attempt("latency", runs.measure_more, fresh=True, tells=False)
        runner.interrupted |= runs.runs[-1].stop == "interrupted"
    return combined(runs, placement, options)


def measure_latency(
    source: Source, options: LatencyOptions, progress: Progress, placement: Placement | None = None
) -> Latency:
    """Measure in this process and in fresh ones, as requested, and combine the runs."""
    with latency_runs(source, options, progress) as runs:
        placement = placement or opened(source)
        runs.begin(placement)
        runs.measure_more()
        return combined(runs, placement, options)


def measure_system(placement: Placement, options: LatencyOptions) -> System:
    """Sample the machine's use while the step repeats; each call ends with a synchronize."""
    device = open_device(placement.device)
    synchronize = guarded(device.synchronize, device.name)
    with (
        device.current(),
        prepared(placement, options.train) as step,
        gpu_metrics(placement.device) as gpus,
    ):

        def call() -> None:
            step()
            synchronize()

        duration = None if gpus.names else options.effort.system
        return system_probe.measure(call, gpus=gpus, duration=duration)


def _tree(
    placement: Placement, options: LatencyOptions, runner: Runner, timeline: TimelineOptions
) -> Tree | None:
    if timeline.detail == "summary" or not placement.computes or placement.target.graph:
        return None
    path, recorded = timeline.trace, list[NamedSpans]()
    tree = runner.attempt(
        "timeline",
        lambda: timeline_probe.measure(
            placement,
            train=options.train,
            operators=timeline.detail != "layers",
            keep=None if path is None else recorded.append,
            all_threads=timeline.all_threads,
            effort=timeline.effort,
        ),
    )
    if path is not None and recorded:
        runner.attempt("trace", lambda: rendering.trace(recorded[0], path))
    return _with_lines(tree, placement, options, runner) if timeline.lines and tree else tree


def _compilation(
    placement: Placement,
    options: LatencyOptions,
    runner: Runner,
    timed: _Timed,
    timeline: TimelineOptions,
) -> Compilation | None:
    """Return what was compiled, beside the model run eagerly where layers are requested."""
    compilation, watch = timed.compilation, timed.watch
    if compilation is None or watch is None or timeline.detail == "summary":
        return compilation
    comparison = runner.attempt(
        "eager",
        lambda: eager_probe.measure(placement, watch, train=options.train, effort=timeline.effort),
        tells=False,
    )
    return msgspec.structs.replace(compilation, beside_eager=comparison)


def _roofs(
    placement: Placement,
    cost: Cost | None,
    latency: Latency | None,
    runner: Runner,
    timeline: TimelineOptions,
) -> Roofs | None:
    """Return what the device can do at most, where there is work to hold to it."""
    if cost is None or not placement.computes or not on_host(placement.model):
        return None
    if not timeline.measures_roofs:
        return machine.known_roofs(placement.device)
    measured = runner.attempt(
        "roofs",
        lambda: roofs_probe.measure(placement.device, timeline.roofs, latency, runner.progress),
        tells=False,
    )
    if measured is None:  # interrupted, or it failed: what is kept serves
        return machine.known_roofs(placement.device)
    roofs, warnings = measured
    runner.warnings.extend(warnings)
    return roofs


def _with_lines(tree: Tree, placement: Placement, options: LatencyOptions, runner: Runner) -> Tree:
    """Return the tree with the lines that Python's time goes to, where they were sampled."""
    result = runner.attempt(
        "lines", lambda: lines_probe.measure(placement, tree, train=options.train)
    )
    if result is None:
        return tree
    return msgspec.structs.replace(tree, lines=result[0], passes=(*tree.passes, result[1]))
