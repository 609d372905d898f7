"""Which probe runs when, and in which process, so that none disturbs another.

Size runs nothing. Latency comes first of those that run the model, with nothing attached. The
system's use is sampled in a phase of its own, because the sampler is a load itself. Costs are
counted after what is timed. Memory and the timeline come last: they need torch's profiler, whose
libraries stay loaded.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from torchgauge.analyze.bottleneck import bottleneck
from torchgauge.analyze.latency import combine
from torchgauge.analyze.lower_bound import Fp32
from torchgauge.analyze.named_spans import NamedSpans
from torchgauge.analyze.roofline import roofline
from torchgauge.analyze.throughput import throughput
from torchgauge.analyze.training import training_time
from torchgauge.analyze.tree_bounds import with_bounds
from torchgauge.analyze.tree_costs import layer_times, with_costs
from torchgauge.device import roofs as machine
from torchgauge.device.environment import environment
from torchgauge.device.gpu_metrics import gpu_metrics
from torchgauge.device.select import open_device
from torchgauge.errors import TorchgaugeError
from torchgauge.measure import compilation as compilation_probe
from torchgauge.measure import cost as cost_probe
from torchgauge.measure import latency as latency_probe
from torchgauge.measure import lines as lines_probe
from torchgauge.measure import memory as memory_probe
from torchgauge.measure import nvtx as nvtx_probe
from torchgauge.measure import size as size_probe
from torchgauge.measure import system as system_probe
from torchgauge.measure import timeline as timeline_probe
from torchgauge.measure.forward import running
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.latency import LatencyOptions
from torchgauge.measure.processes import repeated
from torchgauge.measure.step import guarded, prepared
from torchgauge.measure.timeline_options import TimelineOptions
from torchgauge.model import rendering
from torchgauge.model.compilation import Compilation
from torchgauge.model.cost import Cost
from torchgauge.model.environment import Environment
from torchgauge.model.latency import Latency
from torchgauge.model.memory import Memory
from torchgauge.model.profile import Pass, Profile
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.roofline import Bottleneck, Roofline
from torchgauge.model.size import Size
from torchgauge.model.system import System
from torchgauge.model.target import InputDescription, TargetDescription
from torchgauge.model.training import TrainingTime
from torchgauge.model.tree import Tree
from torchgauge.progress import Progress
from torchgauge.target.hygiene import module_of
from torchgauge.target.placement import Placement
from torchgauge.target.source import Source
from torchgauge.target.target import Target

T = TypeVar("T")

# Where the step itself fails, the other probes that run it would only say so again; where it
# killed a process of its own, it would kill this one and the record with it.
STEP_FAILURES = (
    "forward-raised",
    "model-exited",
    "recursion-limit",
    "precision-unsupported",
    "training-missing",
    "child-killed",
    "child-timeout",
    "child-failed",
)


class Runner:
    """Runs the probes one after the other; a failing one leaves the others' results."""

    def __init__(self, progress: Progress, interrupts: Interrupts) -> None:
        self.progress = progress
        self.interrupts = interrupts
        self.passes: list[Pass] = []
        self.warnings: list[MeasurementWarning] = []
        self.interrupted = False
        self.blocked = ""

    def attempt(
        self, probe: str, measure: Callable[[], T], *, fresh: bool = False, tells: bool = True
    ) -> T | None:
        """Return what the probe found; None where it failed or may not run any more.

        `tells` says that where the step fails in this probe, it would fail in the next ones too.
        """
        if self.interrupted:
            return None
        if self.blocked:
            self._skip(probe)
            return None
        start = time.perf_counter()
        try:
            with self.interrupts.allowed():
                self.progress.start(probe)
                return measure()
        except TorchgaugeError as error:
            self.warnings.append(MeasurementWarning.of(error, probe))
            if tells and error.id in STEP_FAILURES:
                self.blocked = error.message
        except KeyboardInterrupt:
            self.interrupted = True
        except Exception as error:  # noqa: BLE001 - the last net: what others measured must stay
            self.warnings.append(_crash(probe, error))
        finally:
            duration = time.perf_counter() - start
            self.passes.append(
                Pass(probe=probe, duration=duration, process="fresh" if fresh else "this")
            )
        return None

    def heed(self, warnings: Sequence[MeasurementWarning]) -> None:
        """Run the step no more where one of several processes failed by it: see STEP_FAILURES."""
        for warning in warnings:
            if warning.failed and warning.id in STEP_FAILURES:
                self.blocked = warning.message

    def _skip(self, probe: str) -> None:
        self.warnings.append(
            MeasurementWarning(
                id="skipped", probe=probe, failed=True, message=f"Not measured: {self.blocked}"
            )
        )


def _crash(probe: str, error: Exception) -> MeasurementWarning:
    return MeasurementWarning(
        id="probe-crashed",
        message=f"The {probe} probe ended with an error that torchgauge does not know.",
        probe=probe,
        failed=True,
        cause=f"{type(error).__name__}: {error}",
        remedy="Please report it with the traceback.",
        traceback="".join(traceback.format_exception(error)),
    )


def profile(
    source: Source,
    options: LatencyOptions,
    progress: Progress,
    timeline: TimelineOptions | None = None,
) -> Profile:
    """Load the target, run every probe that applies, and return the record.

    Raises what loading raises; what a probe raises is a failed warning on the record. Ctrl-C while
    loading raises KeyboardInterrupt; later the record of what was measured is returned.
    """
    with Interrupts() as interrupts:
        return _profile(
            source, options, Runner(progress, interrupts), timeline or TimelineOptions()
        )


def _profile(
    source: Source, options: LatencyOptions, runner: Runner, timeline: TimelineOptions
) -> Profile:
    start = time.perf_counter()
    with runner.interrupts.allowed():
        runner.progress.start("loading")
        placement = opened(source)
    runner.passes.append(Pass(probe="loading", duration=time.perf_counter() - start))
    where = environment()
    target = placement.target
    size: Size | None = None
    if module_of(placement.model) is None:
        runner.warnings.append(_no_module(target))
    else:
        size = runner.attempt("size", lambda: size_probe.measure(placement.model, target.files))
    latency: Latency | None = None
    memory: Memory | None = None
    system: System | None = None
    compilation: Compilation | None = None
    if placement.device == "meta":
        runner.warnings.append(_meta())
    else:
        with compilation_probe.watching(placement.model) as watch:
            latency = runner.attempt(
                "latency",
                lambda: measure_latency(source, options, runner.progress, placement=placement),
                fresh=options.processes > 1,
            )
            if latency is not None:
                runner.interrupted |= latency.stop == "interrupted"
                runner.heed(latency.warnings)
            system = runner.attempt("system", lambda: measure_system(placement, options))
        compilation = watch.found()
    training = options.train is not None
    cost = runner.attempt("cost", lambda: measure_cost(placement, backward=training), tells=False)
    if placement.device != "meta":
        memory = runner.attempt(
            "memory",
            lambda: memory_probe.measure(placement, train=options.train),
        )
    tree = _tree(placement, options, runner, timeline)
    if tree is not None and cost is not None:
        tree = _judged(tree, cost, placement, where)
    if timeline.nvtx and placement.device != "meta":
        runner.attempt("nvtx", lambda: nvtx_probe.run(placement, train=options.train))
    near, bound = _bounds(placement, where, cost, latency, tree)
    description = describe(placement, training=training)
    return Profile(
        target=description,
        environment=where,
        size=size,
        cost=cost,
        latency=latency,
        throughput=None if latency is None else throughput(latency, description),
        memory=memory,
        training=None if latency is None else _training(latency, placement, options),
        system=system,
        roofline=near,
        bottleneck=bound,
        tree=tree,
        compilation=compilation,
        passes=tuple(runner.passes),
        interrupted=runner.interrupted or runner.interrupts.noted,
        warnings=tuple(runner.warnings),
    )


def opened(source: Source) -> Placement:
    """Load and place the target; running out of memory there is said as anywhere else."""
    with running(source.device or "cpu", "Loading the model"):
        return source.open()


def measure_latency(
    source: Source,
    options: LatencyOptions,
    progress: Progress,
    placement: Placement | None = None,
) -> Latency:
    """Measure in this process, or in as many fresh ones as asked for, and combine the runs."""
    failures: list[MeasurementWarning] = []
    if options.processes == 1:
        placement = placement or opened(source)
        runs = [latency_probe.measure(placement, options, progress=progress)]
    else:
        runs, failures = repeated(source, options, progress)
    return combine(
        runs,
        target_rel_error=options.target_rel_error,
        cold_cache=options.cold_cache,
        failures=failures,
    )


def measure_cost(placement: Placement, *, backward: bool) -> Cost:
    """Count one call in the precision that it is measured in."""
    with placement.arithmetic():
        return cost_probe.measure(
            placement.model, placement.inputs, backward=backward, device=placement.device
        )


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

        return system_probe.measure(call, gpus=gpus)


def _tree(
    placement: Placement, options: LatencyOptions, runner: Runner, timeline: TimelineOptions
) -> Tree | None:
    if timeline.detail == "summary" or placement.device == "meta":
        return None
    path, recorded = timeline.trace, list[NamedSpans]()
    tree = runner.attempt(
        "timeline",
        lambda: timeline_probe.measure(
            placement,
            train=options.train,
            operators=timeline.detail != "layers",
            keep=None if path is None else recorded.append,
        ),
    )
    if path is not None and recorded:
        runner.attempt("trace", lambda: rendering.trace(recorded[0], path))
    return _with_lines(tree, placement, options, runner) if timeline.lines and tree else tree


def _with_lines(tree: Tree, placement: Placement, options: LatencyOptions, runner: Runner) -> Tree:
    """Return the tree with the lines that Python's time goes to, where they could be had."""
    found = runner.attempt(
        "lines", lambda: lines_probe.measure(placement, tree, train=options.train)
    )
    if found is None:
        return tree
    return msgspec.structs.replace(tree, lines=found[0], passes=(*tree.passes, found[1]))


def _judged(tree: Tree, cost: Cost, placement: Placement, where: Environment) -> Tree:
    """Return the tree with its work, and with what bounds each layer where the roofs are known."""
    tree = with_costs(tree, cost)
    roofs = machine.known(placement.device)
    return tree if roofs is None else with_bounds(tree, cost, roofs, fp32=_rounding(where))


def _rounding(where: Environment) -> Fp32:
    return where.settings.fp32_matmul, where.settings.fp32_convolution


def _bounds(
    placement: Placement,
    where: Environment,
    cost: Cost | None,
    latency: Latency | None,
    tree: Tree | None,
) -> tuple[Roofline | None, Bottleneck | None]:
    """Return how near the call comes to the machine's roofs, and what bounds it.

    Of a training step neither: it is timed with its optimizer, and counted without.
    """
    if cost is None or latency is None or cost.backward or latency.cold_cache or latency.stages:
        return None, None
    roofs = machine.known(placement.device)
    rounding = _rounding(where)
    times = {} if tree is None else layer_times(tree, cost)
    near = (
        None if roofs is None else roofline(cost, latency, roofs, layer_times=times, fp32=rounding)
    )
    return near, bottleneck(cost, latency, roofs, fp32=rounding)


def _training(
    latency: Latency, placement: Placement, options: LatencyOptions
) -> TrainingTime | None:
    if options.train is None:
        return None
    make = options.train.optimizer
    return training_time(
        latency,
        optimizer=getattr(make, "__qualname__", type(make).__qualname__),
        autocast=placement.precision if placement.method == "autocast" else "",
        scaled=options.train.scaler is not None,
    )


def describe(placement: Placement, *, training: bool) -> TargetDescription:
    """Return what was measured, for the record."""
    target: Target = placement.target
    return TargetDescription(
        spec=target.spec,
        kind=target.kind,
        name=target.name,
        device=placement.device,
        precision=placement.precision,
        precision_method=placement.method,
        inputs=tuple(_input(name, tensor) for name, tensor in placement.inputs.tensors()),
        batch=target.batch,
        tokens=target.tokens,
        images=target.images,
        training=training,
        weights=target.weights,
    )


def _input(name: str, tensor: Any) -> InputDescription:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return InputDescription(name=name, shape=tuple(tensor.shape), dtype=dtype)


def _no_module(target: Target) -> MeasurementWarning:
    return MeasurementWarning(
        id="not-a-module",
        message=f"{target.name} is a plain callable: whose parameters it uses is not known.",
        probe="size",
    )


def _meta() -> MeasurementWarning:
    return MeasurementWarning(
        id="meta-device",
        message="The model is on the meta device: its size and work are counted, nothing is timed.",
    )
