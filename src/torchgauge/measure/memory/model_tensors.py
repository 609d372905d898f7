"""What a model has in memory: its own tensors, and those of layers outside of it that it calls."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from torchgauge.measure.memory.storages import TensorStorage
from torchgauge.measure.recording.scope import observed
from torchgauge.measure.step import Step
from torchgauge.records.memory.alive_tensor import Part
from torchgauge.targets.holdings import Held, holdings, unique
from torchgauge.targets.layers import layers_of

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
