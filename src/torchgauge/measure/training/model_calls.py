"""See what a model is called with while it is trained, by a hook that no copy of the model has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from torchgauge.signals import restoring
from torchgauge.targets.inputs.inputs import Inputs


@restoring
def watched_calls(model: nn.Module, called: Callable[[Inputs], None]) -> Iterator[None]:
    """Tell `called` of each call of the model that is differentiated, until the block ends.

    The model must be the outermost: torch.compile would compile the hook of one inside.
    """
    handle = model.register_forward_pre_hook(_CallHook(model, called), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


class _CallHook:
    """The hook; in a copy of the model, or a pickled one, is one in its place that does nothing."""

    def __init__(self, model: nn.Module, called: Callable[[Inputs], None]) -> None:
        self._model = model
        self._called = called

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if module is self._model and module.training and torch.is_grad_enabled():
            self._called(Inputs(args, kwargs))

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return no_hook

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return the_no_hook, ()


def no_hook(_module: nn.Module, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    """Do nothing before a call."""


def the_no_hook() -> Callable[..., None]:
    """Return what a pickled hook becomes."""
    return no_hook
