"""Functions of torch and of the model's classes: what a forward replaced is put back."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from types import FunctionType, ModuleType
from typing import Any

import torch

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


def save_functions(model: torch.nn.Module | None) -> Callable[[], None]:
    """Save torch's functions, Tensor's and Module's methods, those of the model's classes."""
    classes = {} if model is None else dict.fromkeys(type(m) for m in model.modules())
    before = [(owner, dict(vars(owner))) for owner in dict.fromkeys((*_OWNERS, *classes))]

    def restore() -> None:
        for owner, content in before:
            now = vars(owner)
            if len(now) != len(content) or not all(map(is_, now.values(), content.values())):
                _restore(owner, dict(now), content)

    return restore


def _restore(owner: ModuleType | type, now: dict[str, Any], before: dict[str, Any]) -> None:
    for name, function in before.items():
        changed = _inside(now.get(name)) is not _inside(function)
        if changed and _is_function(function) and not _wrapped(now, name):
            setattr(owner, name, function)
    if isinstance(owner, type):
        for name in now.keys() - before.keys():
            # It hides a method that the class inherits. Other additions hurt nobody, and some are
            # caches and lazily imported parts, as all additions to a module are.
            if any(name in vars(base) for base in owner.__mro__[1:]) and callable(now[name]):
                delattr(owner, name)


def _is_function(value: Any) -> bool:
    return callable(value) or isinstance(value, (staticmethod, classmethod, property))


def _inside(function: Any) -> Any:
    """Return the function that torchgauge has put something around, or the function itself."""
    return (
        vars(function).get(ORIGINAL, function) if isinstance(function, FunctionType) else function
    )


def _wrapped(now: dict[str, Any], name: str) -> bool:
    return hasattr(now.get(name), _DYNAMO)
