"""The memory pass of the timeline: what each layer and operator allocates in a step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import torch

from torchgauge.analyze.memory.layer_memory import layer_memory
from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.call_tree import MODEL, CallTree
from torchgauge.analyze.timeline.tree import node_table
from torchgauge.measure.loop.loop_modules import listed
from torchgauge.measure.memory.memory_warnings import collecting_cycles
from torchgauge.measure.memory.storages import storages
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.recording import record
from torchgauge.measure.step import Step
from torchgauge.measure.timeline.ranges import STEP, Ranges, step_range
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.records.trace.events import Events
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.holdings import ParameterCounts
from torchgauge.targets.inputs.tensors import strided
from torchgauge.targets.placement import Placement

DEVICE_TYPES = {"cpu": 0, "cuda": 1}  # torch's own numbers (c10::DeviceType)


def numbers(device: torch.device) -> tuple[int, int]:
    """Return torch's numbers for a device's type and index; CUDA's without one is the current."""
    if device.type == "cpu":
        return DEVICE_TYPES["cpu"], -1
    index = torch.cuda.current_device() if device.index is None else device.index
    return DEVICE_TYPES[device.type], index


def unrecorded(
    threads: list[str], lost: int, *, probe: str, operators: bool = True
) -> Iterator[MeasurementWarning]:
    """Yield warnings of threads, by name, and of frees that were not recorded.

    `operators` says that those of the threads were recorded, and are in the tree.
    """
    omitted = "allocations are" if operators else "operators and allocations are"
    if threads:
        yield MeasurementWarning(
            id="threads-unrecorded",
            message=f"The step worked on {len(threads)} more thread(s) ({listed(threads)}), "
            f"whose {omitted} not recorded: peak and average, and those of layers, are lower "
            "bounds where they run operators.",
            probe=probe,
            cause=""
            if operators
            else "torch crashes or hangs where another thread is in an operator as a recording "
            "of all threads begins or ends.",
            remedy=""
            if operators
            else "Where no other thread runs operators, all_threads=True (--all-threads) "
            "records theirs.",
        )
    if lost:
        yield MeasurementWarning(
            id="frees-unrecorded",
            message=f"{lost} block(s) were freed unseen (by another thread); each counts "
            "until its address was used again: peaks, also of layers, are upper bounds.",
            probe=probe,
        )


def output_warnings(outputs: Any, probe: str) -> tuple[MeasurementWarning, ...]:
    """Return the warning `output-not-finite` where a tensor in `outputs` holds NaN or infinity.

    Nothing of a tensor's size is allocated. What a tensor cannot be asked (float8, subclasses
    without the operator) counts as finite.
    """
    parts = [part for tensor in tensors_in(outputs) for part in strided(tensor)]
    faults = [_non_finite_kind(part) for part in parts]
    kinds = sorted({kind for kind in faults if kind})
    if not kinds:
        return ()
    return (
        MeasurementWarning(
            id="output-not-finite",
            message=f"{sum(map(bool, faults))} of {len(parts)} output tensors hold "
            f"{' and '.join(kinds)}.",
            probe=probe,
            cause="The figures hold, but they are those of a computation that broke down, or of a "
            "mask of infinities.",
            remedy="Check the weights, the inputs and the precision.",
        ),
    )


def _non_finite_kind(tensor: torch.Tensor) -> str:
    """Return "NaN" or "infinities" where the tensor holds them, else ""."""
    if tensor.is_meta or not tensor.numel():
        return ""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_floating_point():
        return ""
    try:
        low, high = (float(value) for value in torch.aminmax(tensor.detach()))
    except (RuntimeError, NotImplementedError, TypeError):
        return ""
    if math.isnan(low) or math.isnan(high):
        return "NaN"
    return "infinities" if math.isinf(low) or math.isinf(high) else ""


_SECOND = re.compile(re.escape(STEP) + "1")


def measure(
    placement: Placement, step: Step, modules: Modules, tree: CallTree, *, all_threads: bool = False
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
        warnings=tuple(
            unrecorded(step.threads.names(), memory.lost, probe="timeline", operators=all_threads)
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
