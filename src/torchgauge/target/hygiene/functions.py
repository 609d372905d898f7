"""Functions of torch and of the model's classes: what a forward replaced is put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import is_
from types import ModuleType
from typing import Any

import torch

from torchgauge.signals import every

_OWNERS: tuple[ModuleType | type, ...] = (
    torch,
    torch.nn.functional,
    torch.linalg,
    torch.fft,
    torch.special,
    torch.Tensor,
    torch.nn.Module,
)
# Set by Dynamo on functions that it wraps once per process and never again.
_DYNAMO = "_torchdynamo_disable"


def save_functions(model: torch.nn.Module | None) -> Callable[[], None]:
    """Save torch's functions, Tensor's and Module's methods, those of the model's classes."""
    classes = {} if model is None else dict.fromkeys(type(m) for m in model.modules())
    before = [(owner, dict(vars(owner))) for owner in dict.fromkeys((*_OWNERS, *classes))]

    def restore() -> None:
        every(partial(_restore, owner, content) for owner, content in before)

    return restore


def _restore(owner: ModuleType | type, before: dict[str, Any]) -> None:
    now: Mapping[str, Any] = vars(owner)
    if len(now) == len(before) and all(map(is_, now.values(), before.values())):
        return
    now = dict(now)
    for name, function in before.items():
        if _is_function(function) and now.get(name) is not function and not _wrapped(now, name):
            setattr(owner, name, function)
    if isinstance(owner, type):
        for name in now.keys() - before.keys():
            # It hides a method that the class inherits. Other additions hurt nobody, and some are
            # caches and lazily imported parts, as all additions to a module are.
            if any(name in vars(base) for base in owner.__mro__[1:]) and callable(now[name]):
                delattr(owner, name)


def _is_function(value: Any) -> bool:
    return callable(value) or isinstance(value, (staticmethod, classmethod, property))


def _wrapped(now: Mapping[str, Any], name: str) -> bool:
    return hasattr(now.get(name), _DYNAMO)
