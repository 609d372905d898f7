"""A model's attributes, hooks and gradients, and the containers its inputs come in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from operator import is_
from typing import Any

import torch
from torch.nn.modules import module as _module_globals
from torch.nn.parameter import is_lazy

from torchgauge.signals import every
from torchgauge.target import members
from torchgauge.target.inputs import Inputs

_CONTAINERS = frozenset({dict, OrderedDict, list, set})
_HOOKS = tuple(name for name in vars(_module_globals) if name.startswith("_global_"))


def save_structure(model: torch.nn.Module) -> Callable[[], None]:
    """Save every submodule's attributes; containers among them one level deep."""
    before = []
    for module in model.modules():
        attributes = dict(vars(module))
        # Most of a module's containers are empty, and a copy of an OrderedDict is slow.
        held = [value for value in attributes.values() if type(value) in _CONTAINERS]
        contents = [(holder, holder.copy()) for holder in held if holder]
        empty = [holder for holder in held if not holder]
        flag = getattr(module, "training", None)  # None in a frozen program
        before.append((module, type(module), flag, attributes, contents, empty))

    def restore() -> None:
        every(partial(_restore_module, *saved) for saved in before)

    return restore


def save_gradients(model: torch.nn.Module) -> Callable[[], None]:
    """Save `requires_grad` and which tensor is `.grad` of every parameter."""
    before = [
        (p, p.requires_grad, None if is_lazy(p) else p.grad) for p in members.parameters(model)
    ]

    def restore() -> None:
        every(partial(_restore_gradient, *saved) for saved in before)

    return restore


def save_containers(inputs: tuple[Inputs, ...]) -> Callable[[], None]:
    """Save the hooks of all modules, and the lists, dictionaries and sets that inputs come in."""
    hooks = [vars(_module_globals)[name] for name in _HOOKS]
    held = [*hooks, *(c for given in inputs for c in _nested((given.args, given.kwargs)))]
    before = [(holder, _copy(holder)) for holder in held]

    def restore() -> None:
        every(partial(_refill, holder, content) for holder, content in before)

    return restore


def _restore_module(
    module: torch.nn.Module,
    kind: type[torch.nn.Module],
    flag: bool | None,
    attributes: dict[str, Any],
    contents: list[tuple[Any, Any]],
    empty: list[Any],
) -> None:
    # A lazy module changes its class when it gets its parameters, and takes away the hooks that
    # would make them: with those put back it would be broken.
    if type(module) is kind and not _mirrors(module):
        for holder, content in contents:
            _refill(holder, content)
        for holder in filter(None, empty):
            holder.clear()
        _refill(vars(module), attributes)
    if flag is not None and module.training is not flag:  # in no ScriptModule's attributes
        module.training = flag


def _restore_gradient(
    parameter: torch.Tensor, required: bool, gradient: torch.Tensor | None
) -> None:
    if parameter.requires_grad is not required:
        parameter.requires_grad_(required)
    if parameter.grad is not gradient:
        parameter.grad = gradient


def _nested(value: Any) -> Iterator[Any]:
    if _holds(value):
        yield value
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _nested(item)


def _mirrors(module: torch.nn.Module) -> bool:
    """Whether attributes mirror the state of C++ objects, which cannot be put back with them."""
    return type(module).__module__.startswith(("torch.distributed.", "torch.nn.parallel."))


def _holds(value: Any) -> bool:
    return type(value) in _CONTAINERS


def _copy(value: Any) -> Any:
    return value.copy() if _holds(value) else value


def _refill(holder: Any, content: Any) -> None:
    """Give `holder` its former content, and leave it alone where it still has it.

    Compared by identity: tensors have no truth value, and caches keyed on an attribute
    dictionary's version (Dynamo's guards) stay valid.
    """
    if not _holds(holder) or _same(holder, content):
        return
    holder.clear()
    if isinstance(holder, list):
        holder.extend(content)
    else:
        holder.update(content)


def _same(one: Any, other: Any) -> bool:
    if len(one) != len(other):
        return False
    if not one:
        return True
    if isinstance(one, set):
        return bool(one == other)
    if isinstance(one, dict) and not all(map(is_, one.values(), other.values())):
        return False
    return all(map(is_, one, other))
