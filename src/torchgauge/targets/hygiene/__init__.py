"""Restores the model, its inputs and the process after a measurement, on success and on error."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch

from torchgauge.records.record import GradMode
from torchgauge.signals import restoring
from torchgauge.targets import members
from torchgauge.targets.hygiene.functions import save_functions
from torchgauge.targets.hygiene.gradients import Gradients
from torchgauge.targets.hygiene.kept import Restoration, not_restored
from torchgauge.targets.hygiene.process import save_process, save_randomness
from torchgauge.targets.hygiene.recursion import FRAMES, deeper
from torchgauge.targets.hygiene.structure import save_hooks, save_state, save_structure
from torchgauge.targets.hygiene.values import save_values
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.turn import turn

__all__ = ["Restoration", "evaluation", "module_of", "not_restored", "training", "untouched"]


@restoring
def untouched(
    model: Callable[..., Any], *inputs: Inputs, training: bool = False
) -> Iterator[Restoration]:
    """Put the model, its inputs and the process back as they were, on success and on error.

    The model: attributes of every submodule (with them training flags, hooks, registered
    parameters, buffers and caches made by a forward) and what is mutable below them (`state.py`),
    buffer values, `requires_grad` and `.grad` of every tensor that it has or is given. Values of
    parameters, gradients and inputs are put back where a copy is cheap (see `values.py`), those of
    parameters always with `training`; elsewhere a change is noticed. The process: what `process.py`
    and `functions.py` list, warnings filters. Other threads that measure wait meanwhile
    (`turn.py`).
    The block gets what was copied and, afterwards, what the forward changed. What cannot be put
    back is noted there too, and never hides the error that the block raised. Not put back: a lazy
    module stays initialised (`placement.py` copies it); what `contents/walk.py` leaves alone;
    files, threads and processes that the model's own code opened stay open. Any callable is
    allowed; of a module's bound method the module is restored. No signal cuts it short: Ctrl-C
    counts in the block alone.
    """
    restoration = Restoration()
    with turn(), warnings.catch_warnings(), contextlib.ExitStack() as undo:

        def put_back(part: str, restore: Callable[[], None]) -> None:
            undo.push(restoration.guarded(part, restore))

        put_back("the process's settings", save_process())
        undo.enter_context(deeper(FRAMES))
        put_back("random states", save_randomness())
        module = module_of(model)
        put_back("functions", save_functions(module, restoration))
        put_back("hooks of all modules", save_hooks())
        if module is not None:
            put_back("attributes", save_structure(module, restoration))
        state = save_state(model, module, inputs, restoration)
        put_back("what attributes hold", state.restore)
        tensors = [*members.tensors(module), *(tensor for *_, tensor in state.named())]
        tensors += [tensor for call_inputs in inputs for _, tensor in call_inputs.tensors()]
        put_back("gradients", Gradients(tensors).restore)
        put_back(
            "values", save_values(module, inputs, restoration, state.named(), training=training)
        )
        yield restoration


@restoring
def evaluation(
    model: Callable[..., Any], *inputs: Inputs, grad_mode: GradMode = "inference_mode"
) -> Iterator[Restoration]:
    """`untouched`, with the model in evaluation mode and under torch's `grad_mode`."""
    with untouched(model, *inputs) as restoration:
        module = module_of(model)
        if module is not None and any(
            getattr(submodule, "training", True) for submodule in module.modules()
        ):
            # Exported and frozen programs have their mode built in and refuse to change it.
            with contextlib.suppress(NotImplementedError, AttributeError):
                _set_mode(module, training=False)
        # The first turns gradients on as well.
        with torch.inference_mode(mode=grad_mode == "inference_mode"):
            torch.set_grad_enabled(grad_mode == "enable_grad")
            yield restoration


@restoring
def training(model: Callable[..., Any], *inputs: Inputs) -> Iterator[Restoration]:
    """`untouched`, with gradients on and the model in training mode.

    A model that is in training mode already keeps its flags: parts frozen on purpose (batch
    normalisation in evaluation mode) are measured frozen.
    """
    with untouched(model, *inputs, training=True) as restoration:
        module = module_of(model)
        if module is not None and not getattr(module, "training", True):
            _set_mode(module, training=True)
        with torch.inference_mode(mode=False):  # which turns gradients on as well
            yield restoration


def _set_mode(module: torch.nn.Module, *, training: bool) -> None:
    """Put a module into a mode, also where a library's `train` is a whole run of training."""
    kinds = dict.fromkeys(type(submodule) for submodule in module.modules())
    own = [kind.train for kind in kinds if kind.train is not torch.nn.Module.train]
    if all(map(_takes_mode, own)):
        module.train() if training else module.eval()
        return
    for submodule in module.modules():
        submodule.training = training


def _takes_mode(train: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(train).parameters.values())[1:2]
    return any(
        first.default is True or first.kind is inspect.Parameter.VAR_POSITIONAL
        for first in parameters
    )


def module_of(model: Callable[..., Any]) -> torch.nn.Module | None:
    """Return the module behind a target: itself, or the one a bound method belongs to."""
    owner = model.__self__ if isinstance(model, MethodType) else model
    return owner if isinstance(owner, torch.nn.Module) else None
