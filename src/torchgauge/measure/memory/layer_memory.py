"""The memory pass of the timeline: what each layer and operator allocates in a step."""

from __future__ import annotations

import gc
import re

import torch

from torchgauge.analyze.memory.layer_memory import layer_memory
from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.tree import node_table
from torchgauge.measure.memory.layer_parameters import parameters_by_layer
from torchgauge.measure.memory.recorded_allocations import numbers, unrecorded
from torchgauge.measure.memory.storages import storages, tensors_in
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.recording import record
from torchgauge.measure.step import Step
from torchgauge.measure.timeline.ranges import STEP, Ranges, step_range
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.records.trace.events import Events
from torchgauge.targets.placement import Placement

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
    with step.threads.tracking():
        events, outputs = _recorded(placement, step, modules, device)
    spans = attribute(events, tree)
    table = node_table(events, spans, tree, _SECOND)
    memory = layer_memory(
        events,
        spans,
        table,
        _SECOND,
        device=numbers(device),
        parameters=parameters_by_layer(modules, tree),
        outputs=None if step.optimizer is None else outputs,
    )
    return Tree(
        rows=memory.rows,
        step="inference" if step.optimizer is None else "training",
        passes=(Pass(name="memory", steps=1, duration=int(table.host.sum()) * 1e-9),),
        allocator=device.type.upper(),
        warnings=unrecorded(
            step.threads.names(), memory.lost, probe="timeline", operators=all_threads
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
