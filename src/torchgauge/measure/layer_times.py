"""How long each layer runs itself, by stamps alone: quick enough for every process of many."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from torchgauge.analyze.call_tree import Call, CallTree
from torchgauge.analyze.layer_times import LayerTimes, layer_times
from torchgauge.clock import Clock, SystemClock
from torchgauge.device.base import Device
from torchgauge.device.select import open_device
from torchgauge.measure.modules import Modules
from torchgauge.measure.own_threads import OwnThreads
from torchgauge.measure.stamp_cost import calibrated
from torchgauge.measure.stamps import Stamps
from torchgauge.measure.step import guarded, prepared
from torchgauge.target.placement import Placement
from torchgauge.target.training import Training

FEWEST = 5
MOST = 60
SECONDS = 0.1


def measure(placement: Placement, train: Training | None) -> dict[str, float]:
    """Return `own_times` of a placed model's step, in this process.

    Raises what the step raises.
    """
    device = open_device(placement.device)
    with device.current(), prepared(placement, train) as step:
        step()
        return own_times(placement.model, step, waited(SystemClock(), device))


def waited(clock: Clock, device: Device) -> Callable[[], int]:
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
) -> dict[str, float]:
    """Return each layer's own seconds of a step's forward pass by its path, "" for the model.

    They are medians over five stamped steps at least, without the layers that a layer calls and
    without what stamps cost with warm caches; a layer called from several places counts once.
    Where a device runs on its own, `now` waits for it first: else a layer would only be as long as
    its launches.
    """
    modules = Modules(model)
    tree = CallTree(modules.table, modules.name)
    threads = OwnThreads()
    stamps = Stamps(model, modules, now, threads)
    calls: list[list[Call]] = []
    with threads.following(), stamps.watching():
        step()  # the first one after the wrapping is slower
        stamps.taken()
        modules.forget_gone()
        end = now() + round(SECONDS * 1e9)
        while len(calls) < FEWEST or (len(calls) < MOST and now() < end):
            step()
            calls.append(stamps.taken())
            modules.forget_gone()
    return _by_path(layer_times(calls, tree, calibrated(now)), tree)


def _by_path(found: LayerTimes, tree: CallTree) -> dict[str, float]:
    steps: list[dict[str, float]] = []
    for own in found.steps:
        by_path: dict[str, float] = {}
        for number, nanoseconds in own.items():
            path = tree.layers[number].path
            by_path[path] = by_path.get(path, 0) + nanoseconds
        steps.append(by_path)
    paths = dict.fromkeys(path for one in steps for path in one)
    medians = {path: statistics.median(one.get(path, 0) for one in steps) for path in paths}
    return {path: max(0.0, median) * 1e-9 for path, median in medians.items()}
