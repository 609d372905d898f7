"""The layer that runs: by hooks of modules in the forward pass, of autograd nodes in backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from torchgauge.formulas.operand import tensors
from torchgauge.measure.work.internals import graph_task
from torchgauge.signals import restoring

_WRAPPERS = ("_checkpoint_wrapped_module", "_orig_mod", "module")
_OWNER = "torchgauge.layer"


def module_path(name: str) -> str:
    """Return a module's path without the wrappers of checkpointing and DDP."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


class CurrentLayer:
    """The module path of the layer whose operator runs, "" for the model itself."""

    def __init__(self, model: nn.Module) -> None:
        self.path = ""
        self._paths = {module: module_path(name) for name, module in model.named_modules()}
        self._calls: list[str] = []

    @restoring
    def hooked(self) -> Iterator[None]:
        """Follow the calls of modules until the block ends."""
        handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: nn.Module, args: Any) -> None:
        if module not in self._paths:
            return
        self._own(args, self.path)
        self._calls.append(self.path)
        self.path = self._paths[module]

    def _leave(self, module: nn.Module, _args: Any, outputs: Any) -> None:
        if module not in self._paths or not self._calls:
            return
        self._own(outputs, self.path)
        self.path = self._calls.pop()

    def _own(self, value: Any, path: str) -> None:
        """Have the autograd nodes that made tensors say whose their backward is.

        The first to say so is right: a layer's output is also that of the layer around it, and may
        be the next one's input.
        """
        if graph_task() != -1 and not torch.is_grad_enabled():
            return
        for tensor in tensors(value):
            node = tensor.grad_fn
            if node is not None and _OWNER not in node.metadata:
                node.metadata[_OWNER] = path
                node.register_prehook(self._setter(path))

    def _setter(self, path: str) -> Any:
        def set_path(*_: Any) -> None:
            self.path = path

        return set_path
