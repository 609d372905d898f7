"""Saves and restores a model's attributes, hooks and gradients, and mutable objects below them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from operator import is_
from types import MethodType
from typing import Any

import torch
from torch.nn.modules import module as _module_globals
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from torchgauge.signals import run_all
from torchgauge.targets import members
from torchgauge.targets.contents.walk import ATOMS, mirrors
from torchgauge.targets.hygiene.kept import Restoration
from torchgauge.targets.hygiene.state import INPUT, State
from torchgauge.targets.inputs.inputs import Inputs

_CONTAINERS = frozenset({dict, OrderedDict, list, set})


_OWN = frozenset({"_parameters", "_buffers", "_modules"})  # restored one by one


_HOOKS = tuple(name for name in vars(_module_globals) if name.startswith("_global_"))


def save_structure(model: torch.nn.Module, restoration: Restoration) -> Callable[[], None]:
    """Save every submodule's attributes; containers among them one level deep."""
    before = []
    for module in model.modules():
        attributes = dict(vars(module))
        # Most of a module's containers are empty, and a copy of an OrderedDict is slow.
        containers = [value for value in attributes.values() if type(value) in _CONTAINERS]
        contents = [(container, container.copy()) for container in containers if container]
        empty = [container for container in containers if not container]
        flag = getattr(module, "training", None)  # None in a frozen program
        before.append((module, type(module), flag, attributes, contents, empty))

    def restore() -> None:
        run_all(partial(_restore_module, restoration, *saved) for saved in before)

    return restore


def save_gradients(model: torch.nn.Module) -> Callable[[], None]:
    """Save `requires_grad` and which tensor is `.grad` of every parameter."""
    before = [
        (p, p.requires_grad, None if is_lazy(p) else p.grad) for p in members.parameters(model)
    ]

    def restore() -> None:
        run_all(partial(_restore_gradient, *saved) for saved in before)

    return restore


def save_hooks() -> Callable[[], None]:
    """Save the hooks of all modules."""
    before = [(container, _copy(container)) for container in map(vars(_module_globals).get, _HOOKS)]

    def restore() -> None:
        run_all(partial(_refill, container, content) for container, content in before)

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
    attributes: dict[str, Any],
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
        filled: list[tuple[Any, Any]] = [(container, {}) for container in filter(None, empty)]
        for container, content in (*contents, *filled, (vars(module), attributes)):
            restoration.progressed |= _refill(container, content)


def _restore_gradient(
    parameter: torch.Tensor, required: bool, gradient: torch.Tensor | None
) -> None:
    if parameter.requires_grad is not required:
        parameter.requires_grad_(required)
    if parameter.grad is not gradient:
        parameter.grad = gradient


def _is_container(value: Any) -> bool:
    return type(value) in _CONTAINERS


def _copy(value: Any) -> Any:
    return value.copy() if _is_container(value) else value


def _refill(container: Any, content: Any) -> bool:
    """Give `container` its former content, and return False where it still has it.

    Compared by identity: tensors have no truth value, and caches keyed on an attribute
    dictionary's version (Dynamo's guards) stay valid.
    """
    if not _is_container(container) or _same_content(container, content):
        return False
    container.clear()
    if isinstance(container, list):
        container.extend(content)
    else:
        container.update(content)
    return True


def _same_content(first: Any, second: Any) -> bool:
    if len(first) != len(second):
        return False
    if not first:
        return True
    if isinstance(first, set):
        return bool(first == second)
    if isinstance(first, dict) and not all(map(is_, first.values(), second.values())):
        return False
    return all(map(is_, first, second))
