"""The timeline probe: stamps for how long layers take, a recording for what happens in them."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Callable
from typing import Any, Literal

from torchgauge.analyze.attribution import attribute
from torchgauge.analyze.call_tree import CallTree
from torchgauge.analyze.layer_times import LayerTimes, layer_times
from torchgauge.analyze.median import median_interval
from torchgauge.analyze.named_spans import NamedSpans, named_spans
from torchgauge.analyze.phase_times import PhaseTimes
from torchgauge.analyze.stamped_tree import stamped_tree
from torchgauge.analyze.tree import Growth, grow
from torchgauge.analyze.tree_memory import with_memory
from torchgauge.analyze.typical import typical
from torchgauge.clock import Clock, SystemClock
from torchgauge.device.select import open_device
from torchgauge.measure import capture, layer_memory
from torchgauge.measure.modules import Modules
from torchgauge.measure.ranges import STEP, Ranges, step_range
from torchgauge.measure.recording import record
from torchgauge.measure.stamps import Stamps
from torchgauge.measure.step import Step, prepared
from torchgauge.model.tree import Pass, Tree
from torchgauge.target.placement import Placement
from torchgauge.target.training import Training
from torchgauge.trace.kineto import read_events

ROUNDS = 30
FEWEST = 3
FEWEST_LONG = 1
LONG = 5.0  # seconds: of such steps one of each kind has to do
RECORDED = 10
SHORT = 0.2  # seconds
SECONDS = 2.0  # for each of the two passes
_STEPS = re.compile(re.escape(STEP) + r"\d+")

_Phases = dict[str, int]  # ns of each phase of a step


def measure(
    placement: Placement,
    *,
    train: Training | bool | None = None,
    operators: bool = True,
    keep: Callable[[NamedSpans], object] | None = None,
    clock: Clock | None = None,
) -> Tree:
    """Return the tree of one step: host time by layer and operator, forward and backward.

    Layer times of the forward pass are medians over stamped steps, which alternate with bare ones;
    operators share a layer's time as they did in the recording, and those of backward pass and
    optimizer the time of their phase in the bare steps. What is in no layer is the median over
    recorded steps. Memory comes from a recording of its own. Without
    `operators` nothing is recorded, and layers have their forward time alone. `keep` is given what
    was recorded, with the layers' names. Raises MeasurementError as `recording.record` does.
    """
    now = (clock or SystemClock()).now
    how = Training.resolve(train)
    kind: Literal["inference", "training"] = "inference" if how is None else "training"
    with open_device(placement.device).current(), prepared(placement, how) as step:
        modules = Modules(placement.model)
        tree = CallTree(modules.table, modules.name)
        step()
        stamped, alone, with_stamps = _stamped(placement, step, modules, tree, now)
        bare = _seconds(alone)
        known: dict[str, Any] = {"bare": bare, "bare_interval": median_interval(_lengths(alone))}
        stamps = Pass(name="stamps", steps=len(stamped.steps), duration=with_stamps, **known)
        memory = None
        if operators:
            growth, phases, with_ranges = _recorded(placement, step, modules, tree, bare, keep, now)
            memory = layer_memory.measure(placement, step, modules, tree)
    if memory is None:
        return stamped_tree(stamped, tree, step=kind, passes=(stamps,))
    recording = Pass(name="recording", steps=growth.host.shape[1], duration=with_ranges, **known)
    passes = (stamps, recording)
    found = typical(growth, stamped, step=kind, passes=passes, phases=PhaseTimes(alone, phases))
    return with_memory(found, memory)


def _stamped(
    placement: Placement,
    step: Step,
    modules: Modules,
    tree: CallTree,
    now: Callable[[], int],
) -> tuple[LayerTimes, list[_Phases], float]:
    """Return the layers' times by step, the bare steps, and the median of the stamped ones in s."""
    stamps = Stamps(placement.model, modules, now)
    bare: list[_Phases] = []
    watched: list[_Phases] = []
    calls = []
    began = now()
    fewest = FEWEST
    while len(bare) < fewest or (len(bare) < ROUNDS and now() - began < SECONDS * 1e9):
        bare.append(_settled(step, now))
        with stamps.watching():
            watched.append(_settled(step, now, stamps.taken))
        calls.append(stamps.taken())
        modules.forget_gone()
        fewest = _fewest(_seconds(bare[:1]))
    return layer_times(calls, tree), bare, _seconds(watched)


def _recorded(
    placement: Placement,
    step: Step,
    modules: Modules,
    tree: CallTree,
    bare: float,
    keep: Callable[[NamedSpans], object] | None,
    now: Callable[[], int],
) -> tuple[Growth, list[_Phases], float]:
    """Return the recorded nodes, the recorded steps, and their median in s as the profiler has it.

    The first step is recorded by itself, to tell how many fit into the memory that a recording may
    take. The first of the others is not read: the profiler is slower in it.
    """
    steps = max(_fewest(bare), min(RECORDED, int(SECONDS / max(bare, 1e-9) / 2)))
    ranges = Ranges(placement.model, modules)
    with ranges.marking():
        one = record(step, shapes=True, device=placement.device, all_threads=True)
    fit = capture.budget() // max(1, capture.memory_of(len(one))) - 1
    steps = max(1, min(steps, fit))

    phases: list[_Phases] = []

    def work() -> None:
        step()
        modules.forget_gone()
        for number in range(steps):
            with step_range(number):
                phases.append(_timed(step, now))
            modules.forget_gone()

    with ranges.marking():
        recorded = record(work, shapes=True, device=placement.device, all_threads=True)
    events = read_events(recorded)
    spans = attribute(events, tree)
    if keep is not None:
        keep(named_spans(events, spans, tree))
    growth = grow(events, spans, tree, _STEPS)
    return growth, phases, statistics.median(growth.host.sum(axis=0).tolist()) * 1e-9


def _fewest(step: float) -> int:
    return FEWEST if step < LONG else FEWEST_LONG


def _settled(
    step: Step, now: Callable[[], int], forget: Callable[[], object] = lambda: None
) -> _Phases:
    """Time a step, of short ones the second: a new `__call__` empties method caches."""
    taken = _timed(step, now)
    if _seconds([taken]) < SHORT:
        forget()
        taken = _timed(step, now)
    return taken


def _timed(step: Step, now: Callable[[], int]) -> _Phases:
    marks: list[tuple[str, int]] = []
    step(lambda phase: marks.append((phase, now())))
    return {phase: end - start for (phase, start), (_, end) in itertools.pairwise(marks)}


def _seconds(steps: list[_Phases]) -> float:
    return statistics.median(_lengths(steps))


def _lengths(steps: list[_Phases]) -> list[float]:
    return [sum(step.values()) * 1e-9 for step in steps]
