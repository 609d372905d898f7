"""Saves and restores functions of torch and attributes of the model's classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import is_
from types import FunctionType, ModuleType
from typing import Any

import torch

from torchgauge.signals import run_all
from torchgauge.targets.hygiene.kept import Restoration

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
# Set by torchgauge on what it puts around a function, which it takes off itself: another block, of
# this thread or another, may have begun or ended meanwhile. Its value is the function inside.
ORIGINAL = "_torchgauge_original"


def save_functions(model: torch.nn.Module | None, restoration: Restoration) -> Callable[[], None]:
    """Save torch's functions, Tensor's and Module's methods, those of the model's classes.

    Of classes that are not torch's other values too: a class may count its calls, which
    `restoration` is told.
    """
    classes = {} if model is None else dict.fromkeys(type(m) for m in model.modules())
    before = [(owner, dict(vars(owner))) for owner in dict.fromkeys((*_OWNERS, *classes))]

    def restore() -> None:
        run_all(partial(_restore, restoration, owner, content) for owner, content in before)

    return restore


def _restore(restoration: Restoration, owner: ModuleType | type, before: dict[str, Any]) -> None:
    now: Mapping[str, Any] = vars(owner)
    if len(now) == len(before) and all(map(is_, now.values(), before.values())):
        return
    now = dict(now)
    own = isinstance(owner, type) and not owner.__module__.startswith("torch.")
    for name, value in before.items():
        if _inside(now.get(name)) is _inside(value) or hasattr(now.get(name), _DYNAMO):
            continue
        if _is_function(value) or (own and not _reserved(name)):
            restoration.progressed |= own
            setattr(owner, name, value)
    if isinstance(owner, type):
        for name in now.keys() - before.keys():
            # It hides a method that the class inherits. Other additions to torch hurt nobody, and
            # some are caches and lazily imported parts, as all additions to a module are.
            hides = callable(now[name]) and any(name in vars(base) for base in owner.__mro__[1:])
            if hides or (own and not _reserved(name)):
                restoration.progressed |= own
                delattr(owner, name)


def _reserved(name: str) -> bool:
    """Return whether Python or Dynamo gives a class this attribute on request."""
    return name.startswith(("__", "_abc_", "_torchdynamo"))


def _is_function(value: Any) -> bool:
    return callable(value) or isinstance(value, (staticmethod, classmethod, property))


def _inside(function: Any) -> Any:
    """Return the function that torchgauge has put something around, or the function itself."""
    return (
        vars(function).get(ORIGINAL, function) if isinstance(function, FunctionType) else function
    )
