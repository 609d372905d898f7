"""The memory pass of the timeline: what each layer and operator allocates in a step."""

from __future__ import annotations

import gc
import re

import torch

from torchgauge.analyze.attribution import attribute
from torchgauge.analyze.call_tree import CallTree
from torchgauge.analyze.layer_memory import layer_memory
from torchgauge.analyze.tree import grow
from torchgauge.measure.layer_parameters import parameters_by_layer
from torchgauge.measure.modules import Modules
from torchgauge.measure.ranges import STEP, Ranges, step_range
from torchgauge.measure.recorded_allocations import numbers, unrecorded
from torchgauge.measure.recording import record
from torchgauge.measure.step import Step
from torchgauge.measure.storages import storages, tensors_in
from torchgauge.model.events import Events
from torchgauge.model.tree import Pass, Tree
from torchgauge.target.placement import Placement
from torchgauge.trace.kineto import read_events

_SECOND = re.compile(re.escape(STEP) + "1")


def measure(
    placement: Placement,
    step: Step,
    modules: Modules,
    tree: CallTree,
    *,
    all_threads: bool = False,
) -> Tree:
    """Return the memory of each layer and operator in a step, in bytes, on the target's device.

    Runs two recorded steps, of which the second is read: what the first leaves is then known.
    `tree` grows by layers that are new; `all_threads` says that operators of other threads are in
    it. Raises MeasurementError as `recording.record` does.
    """
    device = torch.device(placement.device)
    with step.threads.following():
        events, outputs = _recorded(placement, step, modules, device)
    spans = attribute(events, tree)
    growth = grow(events, spans, tree, _SECOND)
    found = layer_memory(
        events,
        spans,
        growth,
        _SECOND,
        device=numbers(device),
        parameters=parameters_by_layer(modules, tree),
        outputs=None if step.optimizer is None else outputs,
    )
    return Tree(
        rows=found.rows,
        step="inference" if step.optimizer is None else "training",
        passes=(Pass(name="memory", steps=1, duration=int(growth.host.sum()) * 1e-9),),
        allocator=device.type.upper(),
        warnings=unrecorded(
            step.threads.names(), found.lost, probe="timeline", operators=all_threads
        ),
    )


def _recorded(
    placement: Placement, step: Step, modules: Modules, device: torch.device
) -> tuple[Events, set[int]]:
    """Return the recording of two steps, and the addresses of the second's outputs."""
    outputs: set[int] = set()
    if step.optimizer is not None:  # or their frees would be frees of blocks never seen
        step.optimizer.zero_grad(set_to_none=True)

    def work() -> None:
        for number in range(2):
            step.threads.forget_names()
            gc.collect()  # cycles of an earlier step would end at a time of their own
            with step_range(number):
                returned = step()
                outputs.clear()
                outputs.update(storages(tensors_in(returned), device))
                del returned
            modules.forget_gone()

    with Ranges(placement.model, modules, step.threads).marking():
        recorded = record(work, memory=True, shapes=True)
    return read_events(recorded), outputs
