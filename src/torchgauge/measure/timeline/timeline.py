"""The timeline probe: stamps for how long layers take, a recording for what happens in them."""

from __future__ import annotations

import contextlib
import itertools
import re
import statistics
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from torchgauge.analyze.lanes.recorded_lanes import step_timeline
from torchgauge.analyze.memory.tree_memory import with_memory
from torchgauge.analyze.statistics.median import median_interval
from torchgauge.analyze.timeline import residual
from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.call_tree import Call, CallTree
from torchgauge.analyze.timeline.launches import NamedSpans, named_spans
from torchgauge.analyze.timeline.tree import NodeTable, node_table
from torchgauge.analyze.timeline.typical_step import PhaseTimes, typical
from torchgauge.clock import Clock, SystemClock
from torchgauge.device.select import open_device
from torchgauge.measure.effort import USUAL, Effort
from torchgauge.measure.latency.step_times import Phases, length, median_length, settled, timed
from torchgauge.measure.memory import layer_memory
from torchgauge.measure.recording import capture_limit as capture
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.recording import record
from torchgauge.measure.step import Step, prepared
from torchgauge.measure.timeline.ranges import STEP, Ranges, step_range
from torchgauge.measure.timeline.stamps import Stamps, calibrated
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.timeline.tree import Pass, Timeline, Tree
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Training

MIN_ROUNDS = 3  # rounds
MIN_LONG_ROUNDS = 1
LONG = 5.0  # seconds: of such steps one of each kind has to do
DOUBLE_STAMP_PERIOD = 3  # rounds from one with two stamps at each call to the next


class StampedSteps(NamedTuple):
    """Layer times without the stamps' cost; steps without stamps and with them, in turns."""

    layers: residual.LayerTimes
    bare: list[Phases]
    stamped: list[Phases]


class _Rounds:
    """Runs steps of each kind, and keeps what was noted of them."""

    def __init__(
        self, placement: Placement, step: Step, modules: Modules, now: Callable[[], int]
    ) -> None:
        self._step, self._modules, self._now = step, modules, now
        self._stamps = Stamps(placement.model, modules, now, step.threads)
        self._around = Stamps(placement.model, modules, now, step.threads)
        self.bare: list[Phases] = []
        self.stamped: list[Phases] = []
        self.calls: list[list[Call]] = []
        self.inner: list[list[Call]] = []
        self.outer: list[list[Call]] = []

    def run_bare(self) -> None:
        """Time steps with nothing attached."""
        self.bare += [phases for phases, _ in settled(self._step, self._now, lambda: None)]

    def run_stamped(self) -> None:
        """Time steps and stamp their calls."""
        with self._stamps.watching():
            steps = settled(self._step, self._now, lambda: self._take_calls(self._stamps))
        self.stamped += [phases for phases, _ in steps]
        self.calls += [calls for _, (calls,) in steps]

    def run_stamped_twice(self) -> None:
        """Stamp each call twice: what the outer stamp reads more is what the inner one takes."""
        stamps = self._stamps, self._around
        with self._stamps.watching(), self._around.watching():
            steps = settled(self._step, self._now, lambda: self._take_calls(*stamps))
        self.inner += [inner for _, (inner, _) in steps]
        self.outer += [outer for _, (_, outer) in steps]

    def _take_calls(self, *stamps: Stamps) -> list[list[Call]]:
        calls = [stamp.take_calls() for stamp in stamps]
        self._modules.forget_gone()  # of every step: the next one's would get other names
        return calls


def stamped_steps(
    placement: Placement,
    step: Step,
    modules: Modules,
    tree: CallTree,
    now: Callable[[], int],
    effort: Effort = USUAL,
) -> StampedSteps:
    """Return stamped steps and the bare ones between them, for as long as `effort` says.

    In every third round calls are stamped twice, which tells at each layer what a stamp costs there
    and then; that is taken off the layers' times, as far as whole steps agree.
    """
    rounds = _Rounds(placement, step, modules, now)
    began = now()
    for number in itertools.count():
        rounds.run_bare()
        rounds.run_stamped()
        if number % DOUBLE_STAMP_PERIOD == 0 and length(rounds.bare[0]) < LONG:
            rounds.run_stamped_twice()
        enough = len(rounds.bare) >= effort.stamped_steps or now() - began >= effort.stamps * 1e9
        if enough and number + 1 >= min_rounds(length(rounds.bare[0])):
            break
    cost = residual.stamp_cost(rounds.inner, rounds.outer, tree, calibrated(now))
    bare, stamped = ([step["forward"] for step in s] for s in (rounds.bare, rounds.stamped))
    cost = residual.scaled_to_steps(cost, rounds.calls, tree, bare, stamped)
    return StampedSteps(residual.layer_times(rounds.calls, tree, cost), rounds.bare, rounds.stamped)


def min_rounds(seconds: float) -> int:
    """Return how many rounds a step of this duration needs at least."""
    return MIN_ROUNDS if seconds < LONG else MIN_LONG_ROUNDS


_STEPS = re.compile(re.escape(STEP) + r"\d+")


def measure(
    placement: Placement,
    *,
    train: Training | bool | None = None,
    operators: bool = True,
    keep: Callable[[NamedSpans], object] | None = None,
    all_threads: bool = False,
    effort: Effort = USUAL,
    clock: Clock | None = None,
) -> Tree:
    """Return the tree of one step: host time by layer and operator, forward and backward.

    Layer times of the forward pass are medians over stamped steps, which alternate with bare ones;
    operators share a layer's time as they did in the recording, and those of backward pass and
    optimizer the time of their phase in the bare steps. What is in no layer is the median over
    recorded steps. Memory comes from a recording of its own. Without
    `operators` nothing is recorded, and layers have their forward time alone. `keep` is given what
    was recorded, with the layers' names. Threads that the step starts are stamped; their operators
    are recorded with `all_threads` alone, see `Recorder`. Raises MeasurementError as
    `recording.record` does.
    """
    now = (clock or SystemClock()).now
    how = Training.resolve(train)
    kind: Literal["inference", "training"] = "inference" if how is None else "training"
    with (
        open_device(placement.device).current(),
        prepared(placement, how) as step,
        contextlib.ExitStack() as undo,
    ):
        modules = Modules(placement.model)
        tree = CallTree(modules.table, modules.name)
        step()
        undo.enter_context(step.threads.tracking())
        steps = stamped_steps(placement, step, modules, tree, now, effort)
        bare = median_length(steps.bare)
        bare_fields: dict[str, Any] = {
            "bare": bare,
            "bare_interval": median_interval([length(step_phases) for step_phases in steps.bare]),
        }
        with_stamps = median_length(steps.stamped)
        stamps = Pass(name="stamps", steps=len(steps.stamped), duration=with_stamps, **bare_fields)
        memory = None
        if operators:
            table, phases, with_ranges, drawn_step = _recorded(
                placement, step, modules, tree, bare, keep, now, effort, all_threads=all_threads
            )
            memory = layer_memory.measure(placement, step, modules, tree, all_threads=all_threads)
    if memory is None:
        return residual.stamped_tree(steps.layers, tree, step=kind, passes=(stamps,))
    recording = Pass(
        name="recording", steps=table.host.shape[1], duration=with_ranges, **bare_fields
    )
    passes = (stamps, recording)
    known_phases = PhaseTimes(steps.bare, phases)
    step_tree = typical(table, steps.layers, step=kind, passes=passes, phases=known_phases)
    step_tree = msgspec.structs.replace(step_tree, timeline=drawn_step)
    return with_memory(step_tree, memory)


def _recorded(
    placement: Placement,
    step: Step,
    modules: Modules,
    tree: CallTree,
    bare: float,
    keep: Callable[[NamedSpans], object] | None,
    now: Callable[[], int],
    effort: Effort,
    *,
    all_threads: bool,
) -> tuple[NodeTable, list[Phases], float, Timeline | None]:
    """Return the recorded nodes, the recorded steps, their median in s as the profiler has it.

    And one of the steps for a drawing.

    The first step is recorded by itself, to tell how many fit into the memory that a recording may
    take. The first of the others is not read: the profiler is slower in it.
    """
    fitting = int(effort.recording / max(bare, 1e-9))
    steps = max(min_rounds(bare), min(effort.recorded_steps, fitting))
    ranges = Ranges(placement.model, modules, step.threads)
    with ranges.marking():
        first_recording = record(
            step, shapes=True, device=placement.device, all_threads=all_threads
        )
    fit = capture.budget() // max(1, capture.memory_of(len(first_recording))) - 1
    steps = max(1, min(steps, fit))

    phases: list[Phases] = []

    def work() -> None:
        step()
        modules.forget_gone()
        for number in range(steps):
            step.ready()
            with step_range(number):
                phases.append(timed(step, now))
            modules.forget_gone()

    with ranges.marking():
        recorded = record(work, shapes=True, device=placement.device, all_threads=all_threads)
    events = read_events(recorded)
    spans = attribute(events, tree)
    if keep is not None:
        keep(named_spans(events, spans, tree))
    table = node_table(events, spans, tree, _STEPS)
    with_ranges = statistics.median(table.host.sum(axis=0).tolist()) * 1e-9
    return table, phases, with_ranges, step_timeline(events, spans, tree, _STEPS)
