"""Modules with parameters that a call left alone: not called, and no operator read their weights.

Both are asked, since a module may read the weights of another without calling it, as attention does
with its output's projection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchgauge import units
from torchgauge.model.cost import NotCalled
from torchgauge.model.record import MeasurementWarning
from torchgauge.target import members

SHOWN = 3


class ParametersRead:
    """Takes note of which of a module's parameters are operands."""

    def __init__(self, module: nn.Module | None) -> None:
        self._unread = {id(one) for one in ([] if module is None else members.parameters(module))}
        self.read: set[int] = set()

    def note(self, operands: Iterable[Any]) -> None:
        """Look for parameters among the operands of one call, and in lists of them."""
        for operand in operands:
            if type(operand) in (list, tuple):
                self.note(operand)
            elif id(operand) in self._unread:
                self._unread.discard(id(operand))
                self.read.add(id(operand))


def not_called(
    module: nn.Module | None, called: Callable[[nn.Module], bool], read: set[int]
) -> tuple[NotCalled, ...]:
    """Return the outermost modules that were left alone; `read` is ids of parameters."""
    if module is None:
        return ()
    modules = list(module.named_modules(remove_duplicate=False))
    # A layer that is shared may have been called by its other name.
    touched = read | {id(one) for _, layer in modules if called(layer) for one in _own(layer)}
    used = {
        name: called(layer)
        or isinstance(layer, torch.jit.ScriptModule)  # whose insides are not seen
        or any(id(one) in touched for one in _own(layer))
        for name, layer in modules
    }
    for name, _ in reversed(modules):  # what is inside of a module comes after it
        if name and used[name]:
            used[name.rpartition(".")[0]] = True
    found: list[NotCalled] = []
    for name, layer in modules:
        if not name or used[name] or (found and name.startswith(f"{found[-1].path}.")):
            continue
        if count := sum(one.numel() for one in members.parameters(layer) if not is_lazy(one)):
            found.append(NotCalled(path=name, kind=type(layer).__name__, parameters=count))
    return tuple(found)


def warning(left: tuple[NotCalled, ...]) -> MeasurementWarning:
    """Return what the reader of a cost must know of the modules that were not called."""
    names = [f"{one.path} ({one.kind}, {units.count(one.parameters)})" for one in left[:SHOWN]]
    more = f" and {len(left) - SHOWN:,} more" if len(left) > SHOWN else ""
    modules = "A module" if len(left) == 1 else f"{len(left):,} modules"
    return MeasurementWarning(
        id="modules-not-called",
        message=f"{modules} with parameters did not run: {', '.join(names)}{more}.",
        probe="cost",
        cause="Nothing in this call of the model asked for them: their work is in no figure.",
        remedy="Give the inputs that they work on, by name (--input NAME=SHAPE), if it should be.",
    )


def _own(module: nn.Module) -> list[torch.Tensor]:
    return [one for one in (vars(module).get("_parameters") or {}).values() if one is not None]
