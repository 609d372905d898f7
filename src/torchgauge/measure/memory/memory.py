"""The memory probe: one step's allocations, recorded and divided into parts to the byte."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from torchgauge.analyze.memory import allocations, tree_memory
from torchgauge.analyze.timeline.typical_step import varying_warning
from torchgauge.device.counters import watched_resident
from torchgauge.device.select import open_device
from torchgauge.errors import InputError
from torchgauge.measure.memory import layer_memory, process_memory
from torchgauge.measure.memory.memory_warnings import (
    collecting_cycles,
    torchscript_warnings,
    unread_warnings,
)
from torchgauge.measure.memory.storages import (
    LayerOutputs,
    ModelTensors,
    TensorStorage,
    named_storages,
    storages,
)
from torchgauge.measure.recording.recording import MARK, Marks, record
from torchgauge.measure.step import Step, prepared
from torchgauge.measure.timeline.ranges import LAYER
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.memory.memory import AliveTensor, Memory, Part
from torchgauge.targets import hygiene, members
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.holdings import ParameterCounts, unregistered
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Phase, Training

_METHOD = "allocations and frees recorded by torch.profiler in the second of two steps, on top of "
_BEFORE = {
    "cpu": "the storages known before them; libraries' workspace and other threads' "
    "allocations show in the resident set alone",
    "cuda": "what the device's allocator held before them; what of that has no name (libraries' "
    "workspaces, rounding, other tensors of the process) is workspace",
}


def measure(placement: Placement, *, train: Training | bool | None = None) -> Memory:
    """Return the memory that one step of the target needs on its device, in bytes.

    Runs four steps: one to warm up, one undisturbed (resident set, the device's allocator, the
    threads in use), two recorded for their allocations. Raises InputError `meta-model`,
    `device-unsupported` and those of TrainingStep; MeasurementError as `forward.running` and
    `recording.record` do.
    """
    if placement.target.graph is not None:
        return process_memory.measure(placement)
    device = _device(placement)
    how = Training.resolve(train)
    caller_storages = _caller_storages(placement, device)
    with open_device(placement.device).current(), prepared(placement, how) as step:
        own = ModelTensors(placement.model)
        with own.watching(step):
            outputs = step()
        broken = layer_memory.output_warnings(outputs, "memory")
        del outputs
        with (
            step.threads.tracking(),
            watched_resident() as process,
            process_memory.watched(device, step.subject) as reported,
        ):
            step()
        recorded = _Recording(placement, step, device, caller_storages, own).read()
    parts: dict[str, Any] = {str(part): size for part, size in recorded.figures.parts.items()}
    parts |= recorded.peak_place
    return Memory(
        peak=recorded.figures.peak,
        average=recorded.figures.average,
        **parts,
        step="inference" if how is None else "training",
        grad_mode=placement.grad_modes[0] if how is None else "enable_grad",
        device=placement.device,
        method=_METHOD + _BEFORE[device.type],
        retained_for_backward=None if how is None else recorded.figures.retained,
        per_sample=_per_sample(recorded.figures, placement.target.batch),
        rss_before=_minus(process.before, step.saved_state.host),
        rss_peak=_minus(process.peak, step.saved_state.host),
        allocator_peak=_minus(reported.peak, recorded.measurement_bytes),
        reserved=reported.reserved,
        fragmentation=reported.fragmentation,
        before=recorded.figures.before,
        after=recorded.figures.after,
        tensors=recorded.tensors,
        timeline=recorded.figures.timeline,
        warnings=(
            *layer_memory.unrecorded(step.threads.names(), recorded.lost, probe="memory"),
            *reported.warnings,
            *([varying_warning("memory")] if recorded.varies else []),
            *broken,
            *torchscript_warnings(placement),
            *unregistered(ParameterCounts(placement.model), own.called, "memory"),
            *unread_warnings(placement.inputs),
            *step.saved_state.warnings("memory"),
        ),
    )


@dataclasses.dataclass(frozen=True)
class _RecordedStep:
    """The figures of the recorded step, what ran at its peak, and the frees that were not recorded.

    `measurement_bytes` are those on the device that only the measurement keeps there. `varies`: the
    step before it ran other operators.
    """

    figures: allocations.StepMemory
    tensors: tuple[AliveTensor, ...]
    lost: int
    measurement_bytes: int
    peak_place: dict[str, str]
    varies: bool


class _Recording:
    """Two recorded steps, of which the second is read: what the first leaves is then known."""

    def __init__(
        self,
        placement: Placement,
        step: Step,
        device: torch.device,
        caller_storages: dict[int, int],
        own: ModelTensors,
    ) -> None:
        self.own = own
        self.placement = placement
        self.step = step
        self.device = device
        self.caller_storages = caller_storages
        self.allocated: int | None = None
        self.marks = Marks()
        self.phases: list[dict[Phase, str]] = []
        self.marked_storages: list[tuple[str, list[tuple[Part, TensorStorage]]]] = []
        self.layers = LayerOutputs(placement.model, device, self.marks)

    def read(self) -> _RecordedStep:
        """Record, and return the figures of the second step."""
        optimizer = self.step.optimizer
        if optimizer is not None:  # or their frees would be frees of blocks never seen
            optimizer.zero_grad(set_to_none=True)
        with self.layers.watching():
            recording = record(self._two_steps, memory=True)
        events = read_events(recording)
        operators = tree_memory.outermost_operators(events, without=(MARK, LAYER))
        marks = tree_memory.named_ranges(events, MARK)
        times = dict(zip(marks.name, marks.start.tolist(), strict=True))
        known_storages = [
            allocations.NamedStorage(part=part, time=times[name], **storage._asdict())
            for name, items in self.marked_storages
            for part, storage in items
        ]
        outputs = [
            allocations.NamedStorage(part="activations", time=times[name], **storage._asdict())
            for name, items in self.layers.returned
            for storage in items
        ]
        begun, phases = (
            {phase: times[name] for phase, name in step.items()} for step in self.phases
        )
        span = allocations.StepTimes(
            start=times[self.marked_storages[0][0]],
            forward=phases["forward"],
            forward_end=phases["end" if optimizer is None else "loss"],
            optimizer=phases.get("optimizer"),
            end=phases["end"],
        )
        blocks = allocations.pair(events.memory.on_device(*layer_memory.numbers(self.device)))
        measurement_bytes = self._measurement_bytes()
        held = _minus(self.allocated, measurement_bytes)
        figures = allocations.step_memory(
            blocks, operators, known_storages, span, held=held, outputs=outputs
        )
        layers = tree_memory.named_ranges(events, LAYER)
        tensors = tree_memory.alive_tensors(figures.alive, operators, layers, self.layers.paths)
        place = {}
        if figures.peak_at is not None:
            began = [
                (start, phase) for phase, start in phases.items() if start <= figures.peak_at[0]
            ]
            place = {
                "peak_layer": self.layers.paths.get(layers.innermost(*figures.peak_at), ""),
                "peak_operator": operators.innermost(*figures.peak_at),
                "peak_phase": max(began)[1],
            }
        varies = _passes(operators, begun) != _passes(operators, phases)
        return _RecordedStep(figures, tensors, blocks.lost, measurement_bytes, place, varies)

    def _two_steps(self) -> None:
        with collecting_cycles() as collect:
            for _ in range(2):
                self.phases.append({})
                self.marked_storages.clear()
                self.layers.returned.clear()
                self.step.ready()
                collect()  # cycles of an earlier step would end at a time of their own
                self._name()
                self.allocated = process_memory.allocated(self.device)
                outputs = self.step(self._mark)
                self._name(outputs)
                del outputs

    def _measurement_bytes(self) -> int:
        """Return the bytes of copies to put back, and of what the caller holds and no step uses."""
        named = {storage.address for _, storage in self.marked_storages[0][1]}
        unused = [size for address, size in self.caller_storages.items() if address not in named]
        return self.step.saved_state.device + sum(unused)

    def _mark(self, phase: Phase) -> None:
        self.phases[-1][phase] = self.marks.set()

    def _name(self, outputs: Any = None) -> None:
        """Note (part, address, bytes) of every storage that can be named at this moment."""
        own, parameters = self.own.by_part()
        grads = [(f"{name}.grad", p.grad) for name, p in parameters if p.grad is not None]
        inputs = self.placement.inputs.tensors(arrays=True)
        groups: tuple[tuple[Part, Any], ...] = (
            ("parameters", own["parameters"]),
            ("inputs", ((f"input {name}", tensor) for name, tensor in inputs)),
            ("buffers", own["buffers"]),
            ("gradients", grads),
            ("optimizer", _states(self.step.optimizer, parameters)),
            ("outputs", [(f"output {i}", tensor) for i, tensor in enumerate(tensors_in(outputs))]),
            ("workspace", own["workspace"]),
        )
        named: list[tuple[Part, TensorStorage]] = [
            (part, storage)
            for part, tensors in groups
            for storage in named_storages(tensors, self.device)
        ]
        named += (("parameters", storage) for storage in self.own.packed)
        self.marked_storages.append((self.marks.set(), named))


def _passes(operators: tree_memory.Ranges, phases: dict[Phase, int]) -> Counter[str]:
    """Return how often a step's forward and backward pass called each operator."""
    end = phases.get("optimizer", phases["end"])
    inside = (operators.start >= phases["forward"]) & (operators.start < end)
    return Counter(operators.take(inside).name)


def _device(placement: Placement) -> torch.device:
    """Return the device to measure; CUDA without an index is the current one."""
    device = torch.device(placement.device)
    module = hygiene.module_of(placement.model)
    running = members.offloaded(module)
    tensors = [tensor for tensor in members.tensors(module) if id(tensor) not in running]
    if not placement.computes or any(tensor.is_meta for tensor in tensors):
        raise InputError(
            "Memory cannot be measured on the meta device, nor of fake tensors.",
            id="meta-model",
            cause="Such tensors have shapes and no storage: nothing is allocated.",
            remedy="Give the model real weights, for example model.to_empty(device='cpu').",
        )
    if device.type not in layer_memory.DEVICE_TYPES:
        raise InputError(
            f"Memory cannot be measured on {device.type}.",
            id="device-unsupported",
            cause="Allocations are recorded on cpu and cuda.",
            remedy="Measure on one of these; the other figures are available here too.",
        )
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _caller_storages(placement: Placement, device: torch.device) -> dict[int, int]:
    """Return the storages that are the caller's: of the model as given, its gradients, its inputs.

    Where a copy is measured, they stay beside it; so do gradients that training puts away.
    """
    tensors = [tensor for _, tensor in placement.target.inputs.tensors()]
    module = hygiene.module_of(placement.target.model)
    if module is not None:
        tensors += members.tensors(module)
        tensors += [p.grad for p in members.parameters(module) if p.grad is not None]
    return storages(tensors, device)


def _states(
    optimizer: torch.optim.Optimizer | None, parameters: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of an optimizer's state, by their parameter and what they are of it."""
    names = {id(parameter): name for name, parameter in parameters}
    for parameter, state in ({} if optimizer is None else optimizer.state).items():
        items = state.items() if isinstance(state, Mapping) else [("state", state)]
        for key, value in items:
            for tensor in tensors_in(value):
                yield f"{names.get(id(parameter), 'a parameter')}: {key}", tensor


def _minus(size: int | None, copied: int) -> int | None:
    return None if size is None else size - copied


def _per_sample(figures: allocations.StepMemory, batch: int | None) -> float | None:
    if not batch:
        return None
    growing: tuple[Part, ...] = ("inputs", "outputs", "activations", "workspace")
    return sum(figures.parts[part] for part in growing) / batch
