"""The memory probe: one step's allocations, recorded and told apart to the byte."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from torchgauge.analyze.alive_tensors import alive_tensors
from torchgauge.analyze.memory import Known, StepMemory, StepTimes, pair, step_memory
from torchgauge.device.select import open_device
from torchgauge.errors import InputError
from torchgauge.measure import allocator, resident
from torchgauge.measure.finite import output_warnings
from torchgauge.measure.layer_outputs import LayerOutputs
from torchgauge.measure.ranges import LAYER
from torchgauge.measure.recorded_allocations import DEVICE_TYPES, numbers, unrecorded
from torchgauge.measure.recording import MARK, Marks, record
from torchgauge.measure.step import Step, prepared
from torchgauge.measure.storages import NamedStorage, named_storages, storages, tensors_in
from torchgauge.model.alive_tensor import AliveTensor, Part
from torchgauge.model.memory import Memory
from torchgauge.model.record import MeasurementWarning
from torchgauge.target import hygiene, members
from torchgauge.target.placement import Placement
from torchgauge.target.training import Phase, Training
from torchgauge.trace import allocations

_METHOD = "allocations and frees recorded by torch.profiler in the second of two steps, on top of "
_BEFORE = {
    "cpu": "the storages known before them; libraries' scratch space and other threads' "
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
    device = _device(placement)
    how = Training.resolve(train)
    theirs = _theirs(placement, device)
    with open_device(placement.device).current(), prepared(placement, how) as step:
        broken = output_warnings(step(), "memory")
        with (
            step.threads.following(),
            resident.watched() as process,
            allocator.watched(device, step.what) as reported,
        ):
            step()
        seen = _Recorded(placement, step, device, theirs).read()
    parts: dict[str, Any] = {str(part): size for part, size in seen.figures.parts.items()}
    return Memory(
        peak=seen.figures.peak,
        average=seen.figures.average,
        **parts,
        step="inference" if how is None else "training",
        device=placement.device,
        method=_METHOD + _BEFORE[device.type],
        retained_for_backward=None if how is None else seen.figures.retained,
        per_sample=_per_sample(seen.figures, placement.target.batch),
        rss_before=_less(process.before, step.kept.host),
        rss_peak=_less(process.peak, step.kept.host),
        allocator_peak=_less(reported.peak, seen.aside),
        reserved=reported.reserved,
        fragmentation=reported.fragmentation,
        before=seen.figures.before,
        after=seen.figures.after,
        tensors=seen.tensors,
        timeline=seen.figures.timeline,
        warnings=(
            *unrecorded(step.threads.names(), seen.lost, probe="memory"),
            *reported.warnings,
            *broken,
            *_undivided(placement),
            *step.kept.warnings("memory"),
        ),
    )


@dataclasses.dataclass(frozen=True)
class _Seen:
    """The figures of the recorded step, and the frees that were not recorded.

    `aside` are the bytes on the device that only the measurement keeps there.
    """

    figures: StepMemory
    tensors: tuple[AliveTensor, ...]
    lost: int
    aside: int


class _Recorded:
    """Two recorded steps, of which the second is read: what the first leaves is then known."""

    def __init__(
        self, placement: Placement, step: Step, device: torch.device, theirs: dict[int, int]
    ) -> None:
        self.placement = placement
        self.step = step
        self.device = device
        self.theirs = theirs
        self.allocated: int | None = None
        self.marks = Marks()
        self.phases: dict[Phase, str] = {}
        self.known: list[tuple[str, list[tuple[Part, NamedStorage]]]] = []
        self.layers = LayerOutputs(placement.model, device, self.marks)

    def read(self) -> _Seen:
        """Record, and return the figures of the second step."""
        optimizer = self.step.optimizer
        if optimizer is not None:  # or their frees would be frees of blocks never seen
            optimizer.zero_grad(set_to_none=True)
        with self.layers.watching():
            recording = record(self._two_steps, memory=True)
        trace = allocations.read(recording, marks=MARK, layers=LAYER)
        times = dict(zip(trace.marks.name, trace.marks.start.tolist(), strict=True))
        known = [
            Known(part=part, time=times[name], **storage._asdict())
            for name, items in self.known
            for part, storage in items
        ]
        outputs = [
            Known(part="activations", time=times[name], **storage._asdict())
            for name, items in self.layers.returned
            for storage in items
        ]
        phases = {phase: times[name] for phase, name in self.phases.items()}
        span = StepTimes(
            start=times[self.known[0][0]],
            forward=phases["forward"],
            forward_end=phases["end" if optimizer is None else "loss"],
            optimizer=phases.get("optimizer"),
            end=phases["end"],
        )
        blocks = pair(trace.allocations.of(*numbers(self.device)))
        aside = self._aside()
        held = _less(self.allocated, aside)
        figures = step_memory(blocks, trace.operators, known, span, held=held, outputs=outputs)
        tensors = alive_tensors(figures.alive, trace.operators, trace.layers, self.layers.paths)
        return _Seen(figures, tensors, blocks.lost, aside)

    def _two_steps(self) -> None:
        for number in range(2):
            self.known.clear()
            self.layers.returned.clear()
            if number:  # cycles of the first step would end at a time of their own
                gc.collect()
            self._name()
            self.allocated = allocator.allocated(self.device)
            outputs = self.step(self._mark)
            self._name(outputs)
            del outputs

    def _aside(self) -> int:
        """Return the bytes of copies to put back, and of what the caller holds and no step uses."""
        named = {storage.address for _, storage in self.known[0][1]}
        unused = [size for address, size in self.theirs.items() if address not in named]
        return self.step.kept.device + sum(unused)

    def _mark(self, phase: Phase) -> None:
        self.phases[phase] = self.marks.set()

    def _name(self, outputs: Any = None) -> None:
        """Note (part, address, bytes) of every storage that can be named at this moment."""
        module = hygiene.module_of(self.placement.model)
        parameters = [] if module is None else list(module.named_parameters())
        grads = [(f"{name}.grad", p.grad) for name, p in parameters if p.grad is not None]
        groups: tuple[tuple[Part, Any], ...] = (
            ("parameters", parameters),
            ("buffers", [] if module is None else module.named_buffers()),
            ("inputs", [(f"input {name}", one) for name, one in self.placement.inputs.tensors()]),
            ("gradients", grads),
            ("optimizer", _states(self.step.optimizer, parameters)),
            ("outputs", [(f"output {i}", one) for i, one in enumerate(tensors_in(outputs))]),
            ("workspace", [] if module is None else _caches(module)),
        )
        held = [
            (part, storage)
            for part, tensors in groups
            for storage in named_storages(tensors, self.device)
        ]
        self.known.append((self.marks.set(), held))


def _device(placement: Placement) -> torch.device:
    """Return the device to measure; CUDA without an index is the current one."""
    device = torch.device(placement.device)
    module = hygiene.module_of(placement.model)
    tensors = members.tensors(module)
    if not placement.computes or any(tensor.is_meta for tensor in tensors):
        raise InputError(
            "Memory cannot be measured on the meta device, nor of fake tensors.",
            id="meta-model",
            cause="Such tensors have shapes and no storage: nothing is allocated.",
            remedy="Give the model real weights, for example model.to_empty(device='cpu').",
        )
    if device.type not in DEVICE_TYPES:
        raise InputError(
            f"Memory cannot be measured on {device.type}.",
            id="device-unsupported",
            cause="Allocations are recorded on cpu and cuda.",
            remedy="Measure on one of these; the other figures are available here too.",
        )
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _theirs(placement: Placement, device: torch.device) -> dict[int, int]:
    """Return the storages that are the caller's: of the model as given, its gradients, its inputs.

    Where a copy is measured, they stay beside it; so do gradients that training puts away.
    """
    found = [tensor for _, tensor in placement.target.inputs.tensors()]
    module = hygiene.module_of(placement.target.model)
    if module is not None:
        found += members.tensors(module)
        found += [p.grad for p in members.parameters(module) if p.grad is not None]
    return storages(found, device)


def _caches(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that modules hold as plain attributes, in containers or not."""
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers"):
                for tensor in tensors_in(value, objects=False):
                    yield f"{path}.{name}".lstrip("."), tensor


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


def _less(size: int | None, copied: int) -> int | None:
    return None if size is None else size - copied


def _per_sample(figures: StepMemory, batch: int | None) -> float | None:
    if not batch:
        return None
    growing: tuple[Part, ...] = ("inputs", "outputs", "activations", "workspace")
    return sum(figures.parts[part] for part in growing) / batch


def _undivided(placement: Placement) -> tuple[MeasurementWarning, ...]:
    if not isinstance(hygiene.module_of(placement.model), torch.jit.ScriptModule):
        return ()
    return (
        MeasurementWarning(
            id="activations-undivided",
            message="A TorchScript program is one operator to the recording: its activations count "
            "as workspace. The peak is exact.",
            probe="memory",
        ),
    )
