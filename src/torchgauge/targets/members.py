"""A model's parameters and buffers, each once, in a fifth of the time of nn.Module's methods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn

_Kind = Literal["_parameters", "_buffers"]


def parameters(module: nn.Module) -> list[torch.Tensor]:
    """Return the parameters of a module and of all below it."""
    return _members(module.modules(), "_parameters")


def buffers(module: nn.Module) -> list[torch.Tensor]:
    """Return the buffers of a module and of all below it."""
    return _members(module.modules(), "_buffers")


def tensors(module: nn.Module | None) -> list[torch.Tensor]:
    """Return parameters, then buffers; nothing of None."""
    modules = [] if module is None else list(module.modules())
    return [*_members(modules, "_parameters"), *_members(modules, "_buffers")]


def named(module: nn.Module, kind: _Kind) -> list[tuple[str, torch.Tensor]]:
    """Return the parameters or the buffers, each with the first of its names."""
    by_id: dict[int, tuple[str, torch.Tensor]] = {}
    for prefix, submodule in module.named_modules():
        for name, tensor in _held(submodule, kind).items():
            if tensor is not None and id(tensor) not in by_id:
                by_id[id(tensor)] = (f"{prefix}.{name}" if prefix else name, tensor)
    return list(by_id.values())


def _held(module: nn.Module, kind: _Kind) -> Any:
    # What was traced keeps them elsewhere, and finds them when asked.
    return vars(module).get(kind) or getattr(module, kind)


def _members(modules: Iterable[nn.Module], kind: _Kind) -> list[torch.Tensor]:
    # By identity, since the hash of a tensor is a call of Python.
    by_id = {
        id(tensor): tensor
        for submodule in modules
        for tensor in _held(submodule, kind).values()
        if tensor is not None
    }
    return list(by_id.values())
