"""How long each layer runs itself, by stamps alone: quick enough for every process of many."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from torchgauge.analyze.timeline.call_tree import Call, CallTree
from torchgauge.analyze.timeline.residual import LayerTimes, layer_times
from torchgauge.clock import Clock, SystemClock
from torchgauge.device.base import Device
from torchgauge.device.select import open_device
from torchgauge.measure.recording.capture_limit import OwnThreads
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.step import Step, guarded, prepared
from torchgauge.measure.timeline import runtime_timeline
from torchgauge.measure.timeline.stamps import Stamps, calibrated
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.runtime_model import RuntimeModel
from torchgauge.targets.training.training import Training

MIN_STEPS = 5
MIN_QUIET_STEPS = 3
QUIET = 0.8
"""The share of a quiet moment in which the calling thread has a core at least."""
MAX_STEPS = 60
SECONDS = 0.1


class OwnTimes(NamedTuple):
    """Each layer's own seconds of a step by its path, "" for the model.

    `typical` are medians over steps, `fastest` the least ones, which other processes disturbed
    least; those are absent where a runtime tells no times of single steps.
    """

    typical: dict[str, float]
    fastest: dict[str, float]


def measure(placement: Placement, train: Training | None) -> OwnTimes:
    """Return `layer_seconds` of a placed model's step, in this process.

    Raises what the step raises.
    """
    device = open_device(placement.device)
    with device.current(), prepared(placement, train) as step:
        step()
        return layer_seconds(placement, step, synchronized_clock(SystemClock(), device))


def layer_seconds(placement: Placement, step: Step, now: Callable[[], int]) -> OwnTimes:
    """Return `own_times` of a step; of an ONNX file those of its nodes, by layer."""
    if isinstance(placement.model, RuntimeModel):
        return OwnTimes(runtime_timeline.own_times(placement, step, SECONDS, now), {})
    return own_times(placement.model, step, now)


def synchronized_clock(clock: Clock, device: Device) -> Callable[[], int]:
    """Return the clock's reading, of a device that runs on its own once it is done."""
    if not device.asynchronous:
        return clock.now
    synchronize = guarded(device.synchronize, device.name)

    def now() -> int:
        synchronize()
        return clock.now()

    return now


def own_times(
    model: Callable[..., Any], step: Callable[[], object], now: Callable[[], int]
) -> OwnTimes:
    """Return each layer's own seconds of a step's forward pass.

    They are of five stamped steps at least, without the layers that a layer calls and without what
    stamps cost with warm caches; a layer called from several places counts once.
    Where a device runs on its own, `now` waits for it first: else a layer would only be as long as
    its launches.
    """
    calls, tree = _stamped(model, step, now, MIN_STEPS)
    by_path = _by_path(layer_times(calls, tree, calibrated(now)), tree)
    return OwnTimes(
        {path: statistics.median(own) for path, own in by_path.items()},
        {path: min(own) for path, own in by_path.items()},
    )


def undisturbed_call(model: Callable[..., Any], step: Callable[[], object]) -> float | None:
    """Return the sum of the layers' least own seconds; None where no moment of them was quiet.

    It was if the calling thread had a core: where torch's threads share one, they take turns, and
    every call of a layer is as long as the system lets each of them run.
    """
    on_core: dict[int, int] = {}

    def now() -> int:
        reading = SystemClock.now()
        on_core[reading] = time.thread_time_ns()
        return reading

    calls, tree = _stamped(model, step, now, MIN_QUIET_STEPS)
    cost = calibrated(now)
    own = _by_path(layer_times(calls, tree, cost), tree)
    by_core = [
        [call._replace(start=on_core[call.start], end=on_core[call.end]) for call in step_calls]
        for step_calls in calls
    ]
    ran = _by_path(layer_times(by_core, tree, cost), tree)
    seconds = math.fsum(map(min, own.values()))
    seconds_on_core = math.fsum(ran[path][times.index(min(times))] for path, times in own.items())
    return seconds if seconds_on_core > QUIET * seconds > 0 else None


def _stamped(
    model: Callable[..., Any], step: Callable[[], object], now: Callable[[], int], min_steps: int
) -> tuple[list[list[Call]], CallTree]:
    modules = Modules(model)
    tree = CallTree(modules.table, modules.name)
    threads = OwnThreads()
    stamps = Stamps(model, modules, now, threads)
    calls: list[list[Call]] = []
    with threads.tracking(), stamps.watching():
        step()  # the first one after the wrapping is slower
        stamps.take_calls()
        modules.forget_gone()
        end = now() + round(SECONDS * 1e9)
        while len(calls) < min_steps or (len(calls) < MAX_STEPS and now() < end):
            step()
            calls.append(stamps.take_calls())
            modules.forget_gone()
    return calls, tree


def _by_path(times: LayerTimes, tree: CallTree) -> dict[str, list[float]]:
    """Return by path a layer's own seconds in each step, 0 where it did not run."""
    steps: list[dict[str, float]] = []
    for own in times.steps:
        by_path: dict[str, float] = {}
        for number, nanoseconds in own.items():
            path = tree.layers[number].path
            by_path[path] = by_path.get(path, 0) + nanoseconds
        steps.append(by_path)
    paths = dict.fromkeys(path for step in steps for path in step)
    return {path: [max(0.0, step.get(path, 0)) * 1e-9 for step in steps] for path in paths}
