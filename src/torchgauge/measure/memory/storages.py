"""Which storages a value holds: where they are and how big, each once."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from torchgauge import torch_private
from torchgauge.measure.recording.recording import Marks
from torchgauge.measure.recording.scope import observed, wrapped
from torchgauge.measure.step import Step
from torchgauge.measure.timeline.ranges import LAYER
from torchgauge.measure.work.internals import graph_task, never_compiled
from torchgauge.records.memory.memory import Part
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.holdings import Held, holdings, unique
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.tensors import strided
from torchgauge.targets.layers import layers_of


def storages(tensors: Iterable[torch.Tensor], device: torch.device) -> dict[int, int]:
    """Return address → bytes of the storages that back `tensors` on `device`, each once."""
    sizes = {}
    for tensor in tensors:
        for part in strided(tensor):
            storage = part.untyped_storage()
            if storage.nbytes() and _on(part.device, device):
                sizes[storage.data_ptr()] = storage.nbytes()
    return sizes


class TensorStorage(NamedTuple):
    """A storage and the first of the tensors in it, by name."""

    address: int
    size: int
    name: str
    shape: tuple[int, ...]
    dtype: str


def named_storages(
    tensors: Iterable[tuple[str, torch.Tensor]], device: torch.device
) -> list[TensorStorage]:
    """Return the storages that back `tensors` on `device`, each once, in bytes."""
    by_address: dict[int, TensorStorage] = {}
    for name, tensor in tensors:
        for address, size in storages((tensor,), device).items():
            # A nested tensor has no shape, but a number of parts.
            sides = [tensor.size(0)] if tensor.is_nested else list(tensor.shape)
            shape, dtype = tuple(map(int, sides)), str(tensor.dtype).removeprefix("torch.")
            by_address.setdefault(address, TensorStorage(address, size, name, shape, dtype))
    return list(by_address.values())


def _on(device: torch.device, target: torch.device) -> bool:
    same_index = target.index is None or device.index in (None, target.index)
    return device.type == target.type and same_index


class LayerOutputs:
    """Marks the calls of a target's own modules, and notes the storages that they return.

    `paths` are the layers' by the name of their range, the class for the model itself; `returned`
    the storages by the mark at which they were alive. Modules are known by their identity alone:
    what the model makes and drops in a step must not live longer for it.
    """

    def __init__(self, model: Callable[..., Any], device: torch.device, marks: Marks) -> None:
        owner = module_of(model)
        named = [] if owner is None else list(owner.named_modules())
        self._modules = [module for _, module in named]
        self._ranges = {id(module): f"{LAYER}{i}" for i, module in enumerate(self._modules)}
        self._device = device
        self._marks = marks
        self.paths = {
            f"{LAYER}{i}": path or type(module).__name__ for i, (path, module) in enumerate(named)
        }
        self.returned: list[tuple[str, list[TensorStorage]]] = []

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """Watch until the block ends; the recording must begin and end inside it."""
        return wrapped(self._wrap, self._modules)

    def _wrap(self, original: Callable[..., Any], inner: frozenset[type]) -> Callable[..., Any]:
        compiling, ranges, note = torch.compiler.is_compiling, self._ranges, self._note
        thread, home = threading.get_ident, threading.get_ident()

        def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            name = ranges.get(id(self))
            if name is None or compiling() or type(self) in inner:
                return original(self, *args, **kwargs)
            if thread() != home and graph_task() == -1:  # the recording has no other threads
                return original(self, *args, **kwargs)
            with torch_private.RecordFunction(name):
                outputs = original(self, *args, **kwargs)
            note(outputs)
            return outputs

        return __call__

    def _note(self, outputs: Any) -> None:
        tensors = [("", tensor) for tensor in tensors_in(outputs)]
        self.returned.append((self._marks.set(), named_storages(tensors, self._device)))


never_compiled(LayerOutputs._note, below=True)  # noqa: SLF001


Named = list[tuple[str, torch.Tensor]]


class ModelTensors:
    """Names what a model holds by part, and layers outside of it that it calls.

    A tensor in an attribute that is there before the first call is a buffer; what calls leave there
    is workspace.
    """

    def __init__(self, model: Callable[..., Any]) -> None:
        self._called: dict[int, weakref.ref[nn.Module]] = {}
        self.packed: list[TensorStorage] = []
        self._model = model
        self._layers = [layer.module for layer in layers_of(model)]
        self._known_ids = set(map(id, self._layers))
        self._buffers = {held.key for held in holdings(model, packed=False)}
        self._step: Step | None = None

    @contextmanager
    def watching(self, step: Step) -> Iterator[None]:
        """Watch the first call, which tells what the model calls and makes what is lazy."""
        self._step = step
        with step.threads.tracking(), observed(self, self._layers):
            yield
        packed = (held for held in self._held(packed=True) if held.tensor is None)
        self.packed = [
            # No operator allocated it: the address is one that no storage has.
            TensorStorage(-number, held.bytes, held.name, held.shape, _name_of(held.dtype))
            for number, held in enumerate(packed, 1)
        ]

    def enter(self, module: nn.Module, _arguments: Any) -> None:
        """Take note of a module that is called and is not the model's."""
        step = self._step
        if id(module) not in self._known_ids and step is not None and step.threads.owns_current():
            # What the model makes and drops in a step must not live longer for it.
            self._called[id(module)] = weakref.ref(module)

    def leave(self, token: None, outputs: Any) -> None:
        """Do nothing: what is called is known."""

    @property
    def called(self) -> list[nn.Module]:
        """The layers outside of the model that it calls and that are still there."""
        modules = [module for ref in self._called.values() if (module := ref()) is not None]
        inner = {
            id(below) for module in modules for below in module.modules() if below is not module
        }
        return [module for module in modules if id(module) not in inner]

    def by_part(self) -> tuple[dict[Part, Named], Named]:
        """Return the tensors with a storage that are held now, and the parameters among them."""
        parts: dict[Part, Named] = defaultdict(list)
        parameters: Named = []
        for held in self._held(packed=False):
            parts[self._part(held)] += [(held.name, tensor) for tensor in held.parts]
            if held.role == "parameter" and held.tensor is not None:
                parameters.append((held.name, held.tensor))
        return parts, parameters

    def _held(self, *, packed: bool) -> list[Held]:
        return unique(holdings(self._model, self.called, packed=packed))

    def _part(self, held: Held) -> Part:
        if held.role == "parameter":
            return "parameters"
        is_buffer = held.role == "buffer" and (held.registered or held.key in self._buffers)
        return "buffers" if is_buffer else "workspace"


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
