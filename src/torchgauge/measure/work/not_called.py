"""Modules with parameters that a call left alone: not called, and no operator read their weights.

Both are asked, since a module may read the weights of another without calling it, as attention does
with its output's projection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from torchgauge import units
from torchgauge.measure.work.layer_calls import LayerCalls
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.cost import NotCalled
from torchgauge.targets import members

ID = "modules-not-called"
MAX_NAMED = 3


class ParametersRead:
    """Takes note of which of a module's parameters are operands."""

    def __init__(self, module: nn.Module | None) -> None:
        self._unread = {
            id(parameter) for parameter in ([] if module is None else members.parameters(module))
        }
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
    module: nn.Module | None, calls: LayerCalls, read: set[int]
) -> tuple[NotCalled, ...]:
    """Return the outermost modules that were left alone; `read` is ids of parameters."""
    if module is None:
        return ()
    modules = list(module.named_modules(remove_duplicate=False))
    # A layer that is shared may have been called by its other name.
    ran = [layer for _, layer in modules if calls.was_called(layer)]
    touched = read | {id(parameter) for layer in ran for parameter in _own(layer)}
    used = {
        name: calls.was_called(layer)
        or isinstance(layer, torch.jit.ScriptModule)  # whose insides are not seen
        or any(id(parameter) in touched for parameter in _own(layer))
        for name, layer in modules
    }
    for name, _ in reversed(modules):  # what is inside of a module comes after it
        if name and used[name]:
            used[name.rpartition(".")[0]] = True
    uncalled: list[NotCalled] = []
    for name, layer in modules:
        if not name or used[name] or (uncalled and name.startswith(f"{uncalled[-1].path}.")):
            continue
        if count := calls.parameters.total(layer):
            uncalled.append(NotCalled(path=name, kind=type(layer).__name__, parameters=count))
    return tuple(uncalled)


def warnings_of(uncalled: tuple[NotCalled, ...]) -> tuple[MeasurementWarning, ...]:
    """Return the warning of modules that were not called, where there are any."""
    if not uncalled:
        return ()
    names = [
        f"{layer.path} ({layer.kind}, {units.elements(layer.parameters)})"
        for layer in uncalled[:MAX_NAMED]
    ]
    suffix = f" and {len(uncalled) - MAX_NAMED:,} more" if len(uncalled) > MAX_NAMED else ""
    modules = "A module" if len(uncalled) == 1 else f"{len(uncalled):,} modules"
    return (
        MeasurementWarning(
            id=ID,
            message=f"{modules} with parameters did not run: {', '.join(names)}{suffix}.",
            probe="cost",
            cause="Nothing in this call of the model asked for them: their work is in no figure.",
            remedy="Give the inputs that they work on, by name (--input NAME=SHAPE), if it should "
            "be.",
        ),
    )


def _own(module: nn.Module) -> list[torch.Tensor]:
    return [
        parameter
        for parameter in (vars(module).get("_parameters") or {}).values()
        if parameter is not None
    ]
