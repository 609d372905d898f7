"""Checks that a model is one and that its tree can be walked, and copies modules."""

from __future__ import annotations

import copy
import os
import types
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from torchgauge.errors import InputError, text_of
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.hygiene.recursion import deeper, recursion_limit


def check_model(model: Any) -> None:
    """Raise InputError `not-callable` for anything but a model, and as `check_tree`."""
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise InputError(
            f"{model.__name__} is a class, not a model.",
            id="not-callable",
            remedy=f"Make one of it: {model.__name__}().",
        )
    if not callable(model):
        raise InputError(
            f"A {type(model).__name__} is not a model: it cannot be called.",
            id="not-callable",
            remedy=_model_for(model),
        )
    module = module_of(model)
    if module is not None:
        check_tree(module)


def _model_for(value: Any) -> str:
    """Return what to give instead of an object that is not a model."""
    if isinstance(value, str | os.PathLike):
        return (
            "Give the model itself, such as torchvision.models.resnet18(); names are for "
            f"tg.ModelProfiler({os.fspath(value)!r}) and the command line."
        )
    if isinstance(value, Mapping):
        return "A state dict has weights alone: make the model, and call its load_state_dict()."
    return "Give a torch.nn.Module, or a function, and its inputs after it."


def check_tree(module: nn.Module) -> None:
    """Raise InputError for modules whose own methods raise: `eval()`, `modules()`, `state_dict()`.

    `module-unhashable` where a class compares by value and has no hash, `module-cycle` where a
    module contains itself.
    """
    above: list[int] = []
    done: set[int] = set()
    pending: list[tuple[nn.Module, str, bool]] = [(module, "", True)]
    while pending:
        submodule, path, enters = pending.pop()
        if not enters:
            above.pop()
            done.add(id(submodule))
        elif id(submodule) in above:
            raise _cycle(submodule, path)
        elif id(submodule) not in done:
            if type(submodule).__hash__ is None:
                raise _unhashable(submodule, path)
            above.append(id(submodule))
            pending.append((submodule, path, False))
            for name, child in _children(submodule).items():
                if child is not None:
                    pending.append((child, f"{path}.{name}" if path else name, True))


def copied(module: Any, memo: dict[int, Any] | None = None) -> Any:
    """Return a deep copy of a module. Raises InputError `not-copyable`."""
    try:
        with deeper(recursion_limit()):  # a copy takes six frames where a call takes four
            return copy.deepcopy(module, memo)
    except Exception as error:  # the user's own __deepcopy__ or __reduce__ may raise anything
        raise InputError(
            "The model cannot be copied, and the original is not changed.",
            id="not-copyable",
            cause=text_of(error),
            remedy="Convert or move it yourself, and leave the option out; or give the class a "
            "__deepcopy__ that leaves out what cannot be copied.",
        ) from error


def on_module(model: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    """Return what a model is with `module` in the place of its own: that, or its bound method."""
    return (
        types.MethodType(model.__func__, module) if isinstance(model, types.MethodType) else module
    )


def _children(module: nn.Module) -> Any:
    # What was traced keeps them elsewhere, and finds them when asked.
    return vars(module).get("_modules") or dict(module.named_children())


def _cycle(module: nn.Module, path: str) -> InputError:
    return InputError(
        f"The model contains itself: '{path}' is a module that it is in.",
        id="module-cycle",
        cause=f"torch's own methods ({type(module).__name__}.eval(), state_dict()) never end.",
        remedy="Keep the reference where torch registers no module: in a list, or by "
        "object.__setattr__.",
    )


def _unhashable(module: nn.Module, path: str) -> InputError:
    return InputError(
        f"Module '{path or 'the model'}' cannot be put into a set, which torch does with modules.",
        id="module-unhashable",
        cause=f"{type(module).__qualname__} has __eq__ and no __hash__.",
        remedy="Add `__hash__ = torch.nn.Module.__hash__` to the class (a dataclass: eq=False).",
    )
