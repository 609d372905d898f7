"""The modules of a model: registered ones, and those in plain containers."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from torchgauge import torch_private
from torchgauge.targets.contents.walk import ATOMS, Walk, attributes_of, closed_over
from torchgauge.targets.hygiene import module_of

_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})
# Constants of a program that has no other tensors.
FROZEN = "(frozen)"
_CONTAINERS = (list, tuple, dict, set)


class Layer(NamedTuple):
    """A module of a model, by its path.

    `registered`: not where it is in a plain container, as all that is below it; `holder` is the id
    of the module whose container has it, None of the others and of what a function has.
    """

    path: str
    module: nn.Module
    registered: bool = True
    holder: int | None = None


def layers_of(model: Callable[..., Any]) -> list[Layer]:
    """Return a model's modules: those that are registered, then those in plain containers.

    A module that contains the layer that it was entry in is none of its layers. Of a function they
    are the modules that it closes over.
    """
    module = module_of(model)
    layers = [] if module is None else [Layer(*named) for named in module.named_modules()]
    known_ids = {id(layer.module) for layer in layers}

    def add(name: str, value: Any, holder: nn.Module | None) -> None:
        walk = Walk(objects=False, functions=holder is None, outer=(nn.Module,))
        for entry in walk(value, name):
            if not isinstance(entry.item, nn.Module) or id(entry.item) in known_ids:
                continue
            inner = list(entry.item.named_modules(prefix=entry.name))
            if any(submodule is holder for _, submodule in inner):
                continue
            holder_id = None if holder is None else id(holder)
            layers.append(Layer(entry.name, entry.item, registered=False, holder=holder_id))
            layers.extend(Layer(path, below, registered=False) for path, below in inner[1:])
            known_ids.update(id(submodule) for _, submodule in inner)

    for name, value in outside_of_modules(model):
        add(name, value, None)
    for layer in layers:  # which grows
        for name, value in own_attributes(layer.module).items():
            if isinstance(value, _CONTAINERS):
                add(joined(layer.path, name), value, layer.module)
    return layers


def joined(path: str, name: str) -> str:
    """Return the path of what has a name inside of a layer."""
    return f"{path}.{name}" if path and name else path or name


def own_attributes(item: Any) -> dict[str, Any]:
    """Return an object's own attributes, without what is registered and hooks.

    Of a module of TorchScript also what it has in C++.
    """
    attributes = dict(attributes_of(item) or {})
    script = attributes.get("script", item)  # of a program with layers (`loaders/exported.py`)
    if isinstance(script, torch.jit.ScriptModule):
        attributes |= _in_program(script._c)  # noqa: SLF001 - it has no public name
    return {
        name: value
        for name, value in attributes.items()
        if type(value) not in ATOMS and name not in _REGISTERED and not name.endswith("_hooks")
    }


def _in_program(module: Any) -> dict[str, Any]:
    """Return the attributes of a module in C++, and its methods' constants, all of a frozen one."""
    label = "constants" if module.hasattr("training") else FROZEN
    kind = torch_private.program_type.from_jit_type(module._type())  # noqa: SLF001
    values = {name: module.getattr(name) for name in kind.get_attributes()}
    for method in module._method_names():  # noqa: SLF001
        nodes = module._get_method(method).graph.findAllNodes("prim::Constant")  # noqa: SLF001
        values[f"{method} {label}"] = [
            node.output().toIValue()
            for node in nodes
            if node.output().type().kind() != "FunctionType"
        ]
    return values


def outside_of_modules(model: Callable[..., Any]) -> Iterable[tuple[str, Any]]:
    """Return what a callable holds that no module has, by name."""
    if module_of(model) is not None:
        return ()
    owner = model.__self__ if isinstance(model, types.MethodType) else model
    if isinstance(owner, types.FunctionType):
        return closed_over(owner)
    if isinstance(owner, functools.partial):
        return (("func", owner.func), ("args", owner.args), ("keywords", owner.keywords))
    return own_attributes(owner).items()
