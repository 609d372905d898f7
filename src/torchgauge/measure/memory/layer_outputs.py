"""Which layer runs and what it returns, noted in a recording without holding any of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast

from torchgauge.measure.memory.storages import TensorStorage, named_storages
from torchgauge.measure.recording.recording import Marks
from torchgauge.measure.recording.scope import wrapped
from torchgauge.measure.timeline.ranges import LAYER
from torchgauge.measure.work.internals import graph_task, never_compiled
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.hygiene import module_of


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
            with _RecordFunctionFast(name):
                outputs = original(self, *args, **kwargs)
            note(outputs)
            return outputs

        return __call__

    def _note(self, outputs: Any) -> None:
        tensors = [("", tensor) for tensor in tensors_in(outputs)]
        self.returned.append((self._marks.set(), named_storages(tensors, self._device)))


never_compiled(LayerOutputs._note, below=True)  # noqa: SLF001
