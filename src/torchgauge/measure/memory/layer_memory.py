"""The memory pass of the timeline: what each layer and operator allocates in a step."""

from __future__ import annotations

import re

import torch

from torchgauge.analyze.memory.layer_memory import layer_memory
from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.call_tree import MODEL, CallTree
from torchgauge.analyze.timeline.tree import node_table
from torchgauge.measure.memory.cycles import collecting_cycles
from torchgauge.measure.memory.recorded_allocations import numbers, unrecorded
from torchgauge.measure.memory.storages import storages
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.recording import record
from torchgauge.measure.step import Step
from torchgauge.measure.timeline.ranges import STEP, Ranges, step_range
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.records.trace.events import Events
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.holdings import ParameterCounts
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
        parameters=_parameters_by_layer(modules, tree),
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
        with collecting_cycles() as collect:
            for number in range(2):
                step.threads.forget_names()
                step.ready()
                collect()  # cycles of an earlier step would end at a time of their own
                with step_range(number):
                    returned = step()
                    outputs.clear()
                    outputs.update(storages(tensors_in(returned), device))
                    del returned
                modules.forget_gone()

    with Ranges(placement.model, modules, step.threads).marking():
        recorded = record(work, memory=True, shapes=True)
    return read_events(recorded), outputs


def _parameters_by_layer(modules: Modules, tree: CallTree) -> list[int | None]:
    """Return the elements of each layer's own parameters, by its number in the tree.

    A tensor that several layers share is the first one's. A module that is never called (its
    parameters are used by another) is part of the one that it is registered in. None of a plain
    callable, whose parameters nobody knows.
    """
    first: dict[int, int] = {}
    for number, layer in enumerate(tree.layers):
        first.setdefault(layer.module, number)
    by_path = {
        path: module for module, named in enumerate(modules.table) for path in named.paths if path
    }
    owners: list[tuple[int, int]] = []
    for module, named in enumerate(modules.table):
        path, owner = named.paths[0], module
        while owner not in first:
            path = path.rpartition(".")[0]
            owner = by_path.get(path, owner) if path else MODEL
        owners.append((first[owner], module))
    counts = [0] * len(tree.layers)
    counted: set[object] = set()
    parameters = ParameterCounts(modules.target)
    for layer_number, module in sorted(owners):
        layer_module = modules.by_number[module]
        own = {} if layer_module is None else parameters.own(layer_module)
        counts[layer_number] += sum(own[key] for key in own.keys() - counted)
        counted |= own.keys()
    unknown = modules.by_number[MODEL] is None and not counts[MODEL]
    return [None, *counts[1:]] if unknown else [*counts]
