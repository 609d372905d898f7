"""Make the record of a loop that has ended: read its recordings, say what was captured."""

from __future__ import annotations

import os
import shlex
import statistics
import sys
from collections.abc import Iterator, Sequence

import msgspec

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.loop.loop_verdict import loop_verdict
from torchgauge.analyze.loop.step_shares import measuring_cost
from torchgauge.analyze.statistics.median import median_interval
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.loop_tree import LoopTable, joined, loop_table
from torchgauge.analyze.timeline.residual import layer_times
from torchgauge.analyze.timeline.typical_step import typical
from torchgauge.clock import SystemClock
from torchgauge.device.environment import environment
from torchgauge.errors import MeasurementError, TorchgaugeError
from torchgauge.measure.loop.loop_modules import LoopModules
from torchgauge.measure.loop.loop_steps import LoopSteps
from torchgauge.measure.loop.step_ends import StepEnds
from torchgauge.measure.recording.recording import slowed
from torchgauge.measure.timeline.stamps import calibrated
from torchgauge.measure.work.utilization import loop_utilization
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Captured, Loop, Rank
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.records.trace.host_delay import HostDelay

_MANY_THREADS = "torch's profiler records one thread, and the steps ended on several."
# Share of a step: threads that did less work than that beside it need no mention.
CONCURRENT_SHARE = 0.01


def loop_record(
    steps: LoopSteps,
    ends: StepEnds,
    *,
    modules: LoopModules,
    requested_steps: int | None,
    budget: int,
    interrupted: bool,
    slowing: Sequence[str],
) -> Loop:
    """Return the record; where a recording cannot be read, it has a warning in place of a tree."""
    warnings = [*steps.warnings, *(slowed(name, "timeline") for name in slowing)]
    tree = CallTree(modules.table, modules.name)
    recording: LoopTable | None = None
    try:
        recording = _read(steps, tree)
    except TorchgaugeError as error:
        warnings.append(MeasurementWarning.from_error(error, "timeline"))
    except Exception as error:  # noqa: BLE001 - the user's loop must not fail by its measurement
        text = f"The recording of the loop could not be read: {type(error).__name__}: {error}"
        remedy = "Please report this defect."
        unreadable = MeasurementError(text, id="recording-unreadable", remedy=remedy)
        warnings.append(MeasurementWarning.from_error(unreadable, "timeline"))
    watched = len(Loop.durations_of(steps.times(), "memory"))
    recorded = watched if recording is None else recording.table.host.shape[1]
    bare = Loop.durations_of(steps.times(), "bare")
    outermost = dict.fromkeys(layer.name for layer in tree.layers if layer.parent == 0)
    captured = _captured(steps, requested_steps, recorded, budget)
    warnings += _warnings(steps, recording, captured)
    timeline = None if recording is None else _tree(steps, recording, tree, modules, bare)
    loop = Loop(
        roots=modules.roots or tuple(outermost) or modules.met(),
        environment=environment(),
        captured=captured,
        by=ends.by,
        count=steps.count,
        batch=ends.batch,
        tree=timeline,
        stretches=steps.times(),
        communication=None if recording is None else _median(recording.communication.tolist()),
        waiting=None if recording is None else _median(recording.waiting.tolist()),
        host_delays=(*_recorded_delays(recording, timeline), *steps.interruptions.delays()),
        step_times=steps.clock.times(),
        scalars=steps.scalars.per_step(len(Loop.durations_of(steps.times(), "record"))),
        program=program(),
        memory=None if steps.memory is None else steps.memory.memory,
        compilation_costs=steps.compilation_costs.costs(),
        loader_waits=steps.loader_waits.waits(),
        measuring_cost=measuring_cost(steps.times(), steps.between),
        rank=rank(),
        interrupted=interrupted,
        warnings=tuple(warnings),
    )
    used = loop_utilization(
        loop, () if recording is None else recording.products, modules.models(tree), ends.tokens
    )
    loop = msgspec.structs.replace(loop, utilization=used, findings=findings(loop))
    # Who watches memory asks for no verdict on time.
    verdict = loop_verdict(loop) if steps.memory is None else None
    return msgspec.structs.replace(loop, verdict=verdict)


def _read(steps: LoopSteps, tree: CallTree) -> LoopTable | None:
    """Return the recorded steps, those of the estimate where there are no others."""
    recorder = steps.recorder
    for files in (recorder.files, [recorder.estimate] if recorder.estimate else []):
        tables = (loop_table(read_events(file), tree, steps.recorder.names) for file in files)
        parts = [part for part in tables if part.table.host.shape[1]]
        if parts:
            return joined(parts)
    return None


def _tree(
    steps: LoopSteps, recording: LoopTable, tree: CallTree, modules: LoopModules, bare: list[float]
) -> Tree:
    cost = calibrated(SystemClock().now)
    stamped = layer_times([modules.inner(calls) for calls in steps.stamped], tree, cost)
    passes: list[Pass] = []
    for name, phase in (("stamps", "stamp"), ("recording", "record"), ("recording", "estimate")):
        took = [d for stretch in steps.times() if stretch.phase == phase for d in stretch.durations]
        if took and all(earlier.name != name for earlier in passes):
            passes.append(
                Pass(
                    name=name,
                    steps=len(took),
                    duration=statistics.median(took),
                    bare=statistics.median(bare) if bare else None,
                    bare_interval=median_interval(bare) if bare else None,
                )
            )
    # Layers that only stamped steps met are in no node.
    step_tree = typical(recording.table, stamped, step="loop", passes=tuple(passes))
    return msgspec.structs.replace(step_tree, timeline=recording.timeline)


def _recorded_delays(recording: LoopTable | None, tree: Tree | None) -> Iterator[HostDelay]:
    """Yield the waits for data and memory; a device waited no longer than it was idle in a step."""
    if recording is None or tree is None:
        return
    idle = max((use.idle for use in tree.devices), default=None)
    for delay in recording.delays:
        waited = None if idle is None else min(delay.time, idle * delay.steps)
        yield msgspec.structs.replace(delay, idle=waited)


def _captured(
    steps: LoopSteps, requested_steps: int | None, recorded: int, budget: int
) -> Captured:
    needs = steps.recorder.needs
    return Captured(
        requested=requested_steps,
        recorded=recorded,
        budget=budget,
        events=None if needs is None else needs.events,
        memory=None if needs is None else needs.memory,
        file=None if needs is None else needs.file,
        reason=_reason(steps, requested_steps, recorded),
    )


def _reason(steps: LoopSteps, requested_steps: int | None, recorded: int) -> str:
    if requested_steps is not None and recorded >= requested_steps:
        return ""
    if steps.warnings:
        return "the recording failed"
    if steps.put_off:
        return "the steps are of many threads"
    if any(stretch.phase == "settle" for stretch in steps.times()) or steps.phase == "settle":
        return "no more fit into the memory budget"
    return "the loop ended"


def _warnings(
    steps: LoopSteps, recording: LoopTable | None, captured: Captured
) -> Iterator[MeasurementWarning]:
    yield from steps.recorder.left_out.warnings()
    if steps.memory is not None and captured.recorded:
        yield from steps.memory.warnings()
        return
    if recording is None:
        yield MeasurementWarning(
            id="loop-not-recorded",
            message=f"No whole step was recorded; the loop had {steps.count} steps.",
            probe="timeline",
            cause=_MANY_THREADS if steps.put_off else "",
            remedy="Let it run for more steps than are skipped and warm up on one thread, or call "
            "run.step() at the end of each.",
        )
        return
    if not steps.recorder.files and captured.memory is not None:
        yield MeasurementWarning(
            id="loop-first-step",
            message="Only the first recorded step is shown, in which the profiler is slower.",
            probe="timeline",
            cause=f"{captured.reason}: one step takes {captured.memory:,} bytes of memory, of "
            f"{captured.budget:,}.".capitalize(),
            remedy="Give it a larger memory budget, or a longer loop.",
        )
    if not steps.stamped:
        yield MeasurementWarning(
            id="loop-not-stamped",
            message="The layers' times are the profiler's, which slows operators down.",
            probe="timeline",
            cause="The loop ended before steps could be timed without it.",
            remedy="Let it run for about 15 steps more than are recorded.",
        )
    step = sum(recording.table.host.sum(axis=0).tolist())
    if step and (concurrent_share := sum(recording.concurrent.tolist()) / step) > CONCURRENT_SHARE:
        yield MeasurementWarning(
            id="loop-threads",
            message=f"Threads worked side by side: {concurrent_share:.0%} of the times is beside a "
            "step.",
            probe="timeline",
            cause="Each thread's time counts, so that they add up to more than the step.",
        )


def _median(times: Sequence[int]) -> float | None:
    return statistics.median(times) * 1e-9 if times else None


def rank() -> Rank | None:
    """Return which process of a distributed job this is, as torchrun says it."""
    number, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not (number.isdecimal() and world.isdecimal()):
        return None
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    return Rank(
        number=int(number),
        world=int(world),
        job=":".join(os.environ.get(name, "") for name in names),
    )


def program() -> str:
    """Return what runs, as a shell takes it: "train.py --epochs 2"; empty of a notebook."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name and not spec.name.startswith("torchgauge"):
        return shlex.join(["-m", spec.name.removesuffix(".__main__"), *sys.argv[1:]])
    return shlex.join(sys.argv) if sys.argv[:1] and sys.argv[0].endswith(".py") else ""
