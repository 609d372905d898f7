"""Numbers of modules, all that a wrapped call has time to note, and their names."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from torch import nn

from torchgauge.analyze.timeline.call_tree import MODEL, NamedModule
from torchgauge.folders import display_path
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.layers import layers_of
from torchgauge.targets.precisions import name_of


class Modules:
    """Numbers a target's modules, and those it meets outside of it, which get a name by class.

    A module outside of the target may be made anew in every step, as loss functions are: once it is
    gone, the next of its class has its name and number. Number 0 is the target itself, be it a
    module or any callable; `name` is its class or function.
    """

    def __init__(self, model: Callable[..., Any]) -> None:
        self.target = model
        owner = module_of(model)
        self.root = owner if owner is model else None
        original = type(_compiled_from(self.root)) if self.root is not None else model
        self.name = name_of(original).rpartition(".")[2]
        kind = "callable" if self.root is None else type(self.root).__qualname__.rpartition(".")[2]
        source = "" if self.root is None else forward_source(self.root)
        self.table: list[NamedModule] = [NamedModule(("",), kind, source)]
        self.by_number: list[nn.Module | None] = [self.root]
        self._numbers: dict[int, int] = {}
        self._met: dict[str, weakref.ref[nn.Module]] = {}
        self._numbers_met: dict[tuple[str, str], int] = {}
        self._keys_met: dict[str, list[int]] = {}
        self._forgetters: list[Callable[[int], object]] = []
        if self.root is not None:
            self._numbers[identity(self.root)] = MODEL
        if owner is not None:
            self._learn(owner, "")
            for layer in layers_of(model):
                if layer.holder is not None:
                    self._learn(layer.module, layer.path)

    def has(self, module: nn.Module) -> bool:
        """Return whether the module has a number."""
        return identity(module) in self._numbers

    def number(self, module: nn.Module) -> int:
        """Return the module's number, a new one for a module that was never seen."""
        number = self._numbers.get(identity(module))
        if number is None:
            self._meet(module)
            number = self._numbers[identity(module)]
        return number

    def outside(self) -> list[nn.Module]:
        """Return the modules outside of the target that it met and that are still there."""
        return [module for met in self._met.values() if (module := met()) is not None]

    def add(self, name: str, kind: str) -> int:
        """Return the number of something that is timed like a module."""
        self.table.append(NamedModule((name,), kind))
        self.by_number.append(None)
        return len(self.table) - 1

    def on_forget(self, forget: Callable[[int], object]) -> None:
        """Have `forget` called with the identity of each module that is gone."""
        self._forgetters.append(forget)

    def forget_gone(self) -> None:
        """Release modules outside of the target that nothing else holds; call it between steps."""
        for name, keys in self._keys_met.items():
            for key in keys:
                self.by_number[self._numbers[key]] = None
            if self._met[name]() is not None:
                self._hold(self._met[name]())
        for name in [name for name, met in self._met.items() if met() is None]:
            del self._met[name]
            for key in self._keys_met.pop(name):
                del self._numbers[key]
                for forget in self._forgetters:
                    forget(key)

    def _learn(self, owner: nn.Module, prefix: str) -> None:
        for name, module in owner.named_modules(prefix=prefix, remove_duplicate=False):
            key = identity(module)
            number = self._numbers.get(key)
            if number is None:
                self._numbers[key] = self._new(name, module)
            elif module is not self.root:
                self._also(number, name)

    def _new(self, name: str, module: nn.Module) -> int:
        self.table.append(NamedModule((name,), type(module).__name__, forward_source(module)))
        self.by_number.append(module)  # held: its address must not be given to another module
        return len(self.table) - 1

    def _also(self, number: int, name: str) -> None:
        named = self.table[number]
        if name not in named.paths:
            self.table[number] = named._replace(paths=(*named.paths, name))

    def _meet(self, module: nn.Module) -> None:
        """Number a module outside of the target, and those in it."""
        prefix = self._free_name(type(module).__name__)
        self._met[prefix] = weakref.ref(module)
        keys = self._keys_met.setdefault(prefix, [])
        for name, submodule in module.named_modules(prefix=prefix, remove_duplicate=False):
            key = identity(submodule)
            number = self._numbers.get(key)
            if number is not None:
                self._also(number, name)
                continue
            name_and_kind = (name, type(submodule).__name__)
            if name_and_kind not in self._numbers_met:
                self._numbers_met[name_and_kind] = self._new(name, submodule)
            self._numbers[key] = self._numbers_met[name_and_kind]
            self.by_number[self._numbers[key]] = submodule
            keys.append(key)

    def _hold(self, module: nn.Module | None) -> None:
        for submodule in () if module is None else module.modules():
            if (number := self._numbers.get(identity(submodule))) is not None:
                self.by_number[number] = submodule

    def _free_name(self, kind: str) -> str:
        names = itertools.chain([kind], (f"{kind}#{count}" for count in itertools.count(2)))
        return next(name for name in names if name not in self._met)


def _compiled_from(module: nn.Module) -> nn.Module:
    """Return what torch.compile made the module from, or itself."""
    parts = vars(module).get("_modules")
    inside = parts.get("_orig_mod") if isinstance(parts, dict) else None
    return inside if isinstance(inside, nn.Module) else module


def forward_source(module: nn.Module) -> str:
    """Return the file and line of a module's forward; "" where that is torch's or not Python's."""
    # A scripted module's class has none.
    forward = vars(module).get("forward", getattr(type(module), "forward", None))
    forward = getattr(forward, "__wrapped__", forward)
    code = getattr(forward, "__code__", None)
    if not isinstance(code, CodeType) or str(forward.__module__).partition(".")[0] == "torch":
        return ""
    return f"{display_path(Path(code.co_filename))}:{code.co_firstlineno}"


def identity(module: nn.Module) -> int:
    """Return what a module and its DataParallel replicas share."""
    return id(vars(module).get("_forward_hooks", module))
