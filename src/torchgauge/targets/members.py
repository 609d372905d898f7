"""A model's parameters and buffers, each once, in a fifth of the time of nn.Module's methods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchgauge.analyze.memory.training_memory import Trainable

_Kind = Literal["_parameters", "_buffers"]
KINDS: tuple[_Kind, ...] = ("_parameters", "_buffers")
# accelerate's hook, which has the weights that it gives to a layer for the time of a call.
OFFLOADING = "_hf_hook"


def parameters(module: nn.Module) -> list[torch.Tensor]:
    """Return the parameters of a module and of all below it."""
    return _members(module.modules(), "_parameters")


def tensors(module: nn.Module | None) -> list[torch.Tensor]:
    """Return parameters, then buffers; nothing of None."""
    modules = [] if module is None else list(module.modules())
    return [*_members(modules, "_parameters"), *_members(modules, "_buffers")]


def offloaded(module: nn.Module | None) -> dict[int, str]:
    """Return the device on which each tensor without values gets them for a call, by its id.

    accelerate's hooks hold the weights elsewhere, on the host or in a file.
    """
    devices: dict[int, str] = {}
    for layer in () if module is None else module.modules():
        hook = vars(layer).get(OFFLOADING)
        for inner_hook in getattr(hook, "hooks", (hook,)):
            device = getattr(inner_hook, "execution_device", None)
            if device is not None and getattr(inner_hook, "offload", False):
                with_submodules = getattr(inner_hook, "place_submodules", False)
                below = list(layer.modules()) if with_submodules else [layer]
                held = [tensor for kind in KINDS for tensor in _members(below, kind)]
                meta = (id(tensor) for tensor in held if tensor.is_meta)
                devices |= dict.fromkeys(meta, str(torch.device(device)))
    return devices


def trainable(module: nn.Module | None) -> list[Trainable]:
    """Return what has a gradient: each parameter once, as an optimizer is given them."""
    return [
        Trainable(
            tuple(parameter.shape), str(parameter.dtype).removeprefix("torch."), parameter.itemsize
        )
        for parameter in ([] if module is None else parameters(module))
        if parameter.requires_grad and not is_lazy(parameter)
    ]


def named(module: nn.Module, kind: _Kind) -> list[tuple[str, torch.Tensor]]:
    """Return the parameters or the buffers, each with the first of its names."""
    by_id: dict[int, tuple[str, torch.Tensor]] = {}
    for prefix, submodule in module.named_modules():
        for name, tensor in own(submodule, kind).items():
            if tensor is not None and id(tensor) not in by_id:
                by_id[id(tensor)] = (f"{prefix}.{name}" if prefix else name, tensor)
    return list(by_id.values())


def own(module: nn.Module, kind: _Kind) -> Any:
    """Return a module's own parameters or buffers, by name; some are None."""
    # What was traced keeps them elsewhere, and finds them when asked.
    return vars(module).get(kind) or getattr(module, kind)


def _members(modules: Iterable[nn.Module], kind: _Kind) -> list[torch.Tensor]:
    # By identity, since the hash of a tensor is a call of Python.
    by_id = {
        id(tensor): tensor
        for submodule in modules
        for tensor in own(submodule, kind).values()
        if tensor is not None
    }
    return list(by_id.values())
