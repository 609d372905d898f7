"""Find the grad mode in which a model's forward runs: inference mode, or one that it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch._C._functorch import maybe_current_level
from torch.autograd import forward_ad

from torchgauge.errors import ModelError
from torchgauge.records.record import GradMode
from torchgauge.signals import restoring

T = TypeVar("T")

# Parts of torch that turn gradients on for whoever calls them; others do so for ends of their own.
_FOR_CALLERS = ("torch.autograd.", "torch.utils._contextlib", "torch._functorch.eager_transforms")


def decide(modes: list[GradMode], attempt: Callable[[GradMode], T]) -> T:
    """Return what `attempt` returns in the first of the modes that the forward runs in.

    That one is left in `modes`. A forward that turns gradients on has none of them in
    inference mode, where many functions of torch.autograd return zeros: it is run so only if it
    raises in all other modes. Raises the first error where it raises in each.
    """
    pending, failures = list(modes), dict[GradMode, ModelError]()
    while pending:
        mode = pending.pop(0)
        try:
            with _gradients_requested() as requests:
                result = attempt(mode)
        except ModelError as error:
            if error.id != "forward-raised":
                raise
            failures[mode] = error
            continue
        if requests and mode == "inference_mode" and pending:
            pending.append(mode)
            continue
        modes[:] = [mode]
        return result
    raise _first(failures)


def _first(failures: dict[GradMode, ModelError]) -> ModelError:
    """Return the first error; its cause has those of other modes that differ from it."""
    first = next(iter(failures.values()))
    causes = {first.cause}
    for mode, error in failures.items():
        if error.cause not in causes:
            causes.add(error.cause)
            first.cause += f"\nUnder torch.{mode}: {error.cause}"
    return first


@restoring
def _gradients_requested() -> Iterator[list[bool]]:
    """Yield a list that is not empty once the block has turned gradients on, outside of torch.func.

    What torch.func derives has gradients in inference mode as well.
    """
    requests: list[bool] = []
    originals: tuple[tuple[Any, str], ...] = (
        (torch.enable_grad, "__enter__"),
        (torch.set_grad_enabled, "__init__"),
        (forward_ad, "enter_dual_level"),
    )

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - of one frame
            for_user = not caller.startswith("torch.") or caller.startswith(_FOR_CALLERS)
            turns_on = function is not set_grad_enabled or True in (*args, *kwargs.values())
            if for_user and turns_on and maybe_current_level() is None:
                requests.append(True)
            return function(*args, **kwargs)

        return call

    set_grad_enabled = torch.set_grad_enabled.__init__
    before = [(owner, name, getattr(owner, name)) for owner, name in originals]
    for owner, name, function in before:
        setattr(owner, name, noting(function))
    try:
        yield requests
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)
