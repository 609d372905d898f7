"""Modules by number: what a wrapped call can afford to note, and the names it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from torchgauge.analyze.call_tree import MODEL, Named
from torchgauge.target.hygiene import module_of


class Modules:
    """Numbers a target's modules, and those it meets outside of it, which get a name by class.

    Number 0 is the target itself, be it a module or any callable; `name` is its class or function.
    """

    def __init__(self, model: Callable[..., Any]) -> None:
        owner = module_of(model)
        self.root = owner if owner is model else None
        made = type(self.root) if self.root is not None else model
        self.name = getattr(made, "__qualname__", type(made).__qualname__).rpartition(".")[2]
        kind = self.name if self.root is not None else "callable"
        self.table: list[Named] = [Named(("",), kind)]
        self.of: list[nn.Module | None] = [self.root]
        self._numbers: dict[int, int] = {}
        self._classes: dict[str, int] = {}
        if self.root is not None:
            self._numbers[identity(self.root)] = MODEL
        if owner is not None:
            self._learn(owner, "")

    def number(self, module: nn.Module) -> int:
        """Return the module's number, a new one for a module that was never seen."""
        found = self._numbers.get(identity(module))
        if found is None:
            self._learn(module, self._class_name(module))
            found = self._numbers[identity(module)]
        return found

    def _learn(self, module: nn.Module, prefix: str) -> None:
        for name, one in module.named_modules(prefix=prefix, remove_duplicate=False):
            key = identity(one)
            number = self._numbers.get(key)
            if number is None:
                self._numbers[key] = len(self.table)
                self.table.append(Named((name,), type(one).__name__))
                self.of.append(one)  # kept: its address must not be given to another module
            elif one is not self.root:
                known = self.table[number]
                self.table[number] = Named((*known.paths, name), known.kind)

    def _class_name(self, module: nn.Module) -> str:
        kind = type(module).__name__
        self._classes[kind] = count = self._classes.get(kind, 0) + 1
        return kind if count == 1 else f"{kind}#{count}"


def identity(module: nn.Module) -> int:
    """Return what a module and its DataParallel replicas share."""
    return id(vars(module).get("_forward_hooks", module))
