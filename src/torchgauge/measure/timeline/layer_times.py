"""How long each layer runs itself, by stamps alone: quick enough for every process of many."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from torchgauge.analyze.timeline.call_tree import Call, CallTree
from torchgauge.analyze.timeline.layer_times import LayerTimes, layer_times
from torchgauge.clock import Clock, SystemClock
from torchgauge.device.base import Device
from torchgauge.device.select import open_device
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.own_threads import OwnThreads
from torchgauge.measure.step import Step, guarded, prepared
from torchgauge.measure.timeline import runtime_timeline
from torchgauge.measure.timeline.stamp_cost import calibrated
from torchgauge.measure.timeline.stamps import Stamps
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.runtime_model import RuntimeModel
from torchgauge.targets.training.training import Training

MIN_STEPS = 5
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
        while len(calls) < MIN_STEPS or (len(calls) < MAX_STEPS and now() < end):
            step()
            calls.append(stamps.take_calls())
            modules.forget_gone()
    return _by_path(layer_times(calls, tree, calibrated(now)), tree)


def _by_path(times: LayerTimes, tree: CallTree) -> OwnTimes:
    steps: list[dict[str, float]] = []
    for own in times.steps:
        by_path: dict[str, float] = {}
        for number, nanoseconds in own.items():
            path = tree.layers[number].path
            by_path[path] = by_path.get(path, 0) + nanoseconds
        steps.append(by_path)
    paths = dict.fromkeys(path for step in steps for path in step)
    by_path = {path: [max(0.0, step.get(path, 0)) * 1e-9 for step in steps] for path in paths}
    return OwnTimes(
        {path: statistics.median(own) for path, own in by_path.items()},
        {path: min(own) for path, own in by_path.items()},
    )
