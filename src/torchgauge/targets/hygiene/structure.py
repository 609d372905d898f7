"""Saves and restores a model's attributes and hooks, and mutable objects below them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch.nn.modules import module as _module_globals
from torch.nn.modules.lazy import LazyModuleMixin

from torchgauge.signals import run_all
from torchgauge.targets import members
from torchgauge.targets.contents import kinds
from torchgauge.targets.contents.walk import ATOMS, mirrors
from torchgauge.targets.hygiene.kept import Restoration
from torchgauge.targets.hygiene.state import INPUT, State
from torchgauge.targets.inputs.inputs import Inputs

_CONTAINERS: dict[type[Any], kinds.Kind] = {
    dict: kinds.DICT, OrderedDict: kinds.ORDERED, list: kinds.LIST, set: kinds.SET
}  # fmt: skip


_OWN = frozenset({"_parameters", "_buffers", "_modules"})  # restored one by one


_HOOKS = tuple(name for name in vars(_module_globals) if name.startswith("_global_"))


def save_structure(model: torch.nn.Module, restoration: Restoration) -> Callable[[], None]:
    """Save every submodule's attributes; containers among them one level deep."""
    before = []
    for module in model.modules():
        attributes = vars(module)
        # Most of a module's containers are empty, and a copy of an OrderedDict is slow.
        containers = [value for value in attributes.values() if type(value) in _CONTAINERS]
        contents = [_noted(container) for container in containers if container]
        empty = [container for container in containers if not container]
        flag = getattr(module, "training", None)  # None in a frozen program
        noted = kinds.DICT.note(attributes)
        before.append((module, type(module), flag, noted, contents, empty))

    def restore() -> None:
        run_all(partial(_restore_module, restoration, *saved) for saved in before)

    return restore


def save_hooks() -> Callable[[], None]:
    """Save the hooks of all modules."""
    containers = map(vars(_module_globals).get, _HOOKS)
    before = [_noted(container) for container in containers if type(container) in _CONTAINERS]

    def restore() -> None:
        run_all(partial(_refill, *noted) for noted in before)

    return restore


def save_state(  # noqa: C901 - one pass over all there is
    model: Callable[..., Any],
    module: torch.nn.Module | None,
    inputs: tuple[Inputs, ...],
    restoration: Restoration,
) -> State:
    """Note what is mutable below a module's attributes, or a callable object's, and in the inputs.

    Containers that are attributes themselves, and hooks, are left to `save_structure`.
    """
    named = [] if module is None else list(module.named_modules())
    known_objects = [submodule for _, submodule in named] + members.tensors(module)
    known_objects += [tensor for call_inputs in inputs for _, tensor in call_inputs.tensors()]
    state = State(restoration, map(id, known_objects))
    for path, owner in named:
        for name, value in vars(owner).items():
            kind = type(value)
            if kind in ATOMS or (kind in _CONTAINERS and (not value or name in _OWN)):
                continue
            member_path = f"{path}.{name}" if path else name
            if kind not in _CONTAINERS:
                state.note(member_path, value)
            elif "_hooks" not in name:
                for item in value.values() if isinstance(value, dict) else value:
                    state.note(member_path, item)
    if module is None:
        state.note("its state", model.__self__ if isinstance(model, MethodType) else model)
    for kind in {type(submodule) for _, submodule in named}:
        if not kind.__module__.startswith("torch."):
            for name, value in vars(kind).items():
                state.note(f"{kind.__name__}.{name}", value)
    for call_inputs in inputs:
        state.note(INPUT, call_inputs.args)
        state.note(INPUT, call_inputs.kwargs)
    return state


def _restore_module(
    restoration: Restoration,
    module: torch.nn.Module,
    kind: type[torch.nn.Module],
    flag: bool | None,
    attributes: Any,
    contents: list[tuple[Any, Any]],
    empty: list[Any],
) -> None:
    # A lazy module changes its class when it gets its parameters, and takes away the hooks that
    # would make them: with those put back it would be broken.
    if type(module) is not kind and not issubclass(kind, LazyModuleMixin):
        object.__setattr__(module, "__class__", kind)
    if flag is not None and module.training is not flag:  # in no ScriptModule's attributes
        module.training = flag
    if type(module) is kind and not mirrors(kind):
        for container in filter(None, empty):
            restoration.progressed = True
            container.clear()
        for noted in (*contents, (vars(module), attributes)):
            restoration.progressed |= _refill(*noted)


def _noted(container: Any) -> tuple[Any, Any]:
    return container, _CONTAINERS[type(container)].note(container)


def _refill(container: Any, content: Any) -> bool:
    """Give `container` its former content, and return False where it still has it.

    Compared by identity: tensors have no truth value, and caches keyed on an attribute
    dictionary's version (Dynamo's guards) stay valid.
    """
    kind = _CONTAINERS[type(container)]
    if kind.refill is None or kind.matches(container, content):
        return False
    kind.refill(container, content)
    return True
