"""The model leaves as it came: what a measurement may change is put back, whatever happens."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from operator import is_
from typing import Any

import numpy as np
import torch
from torch.nn.modules import module as _module_globals
from torch.nn.parameter import is_lazy
from torch.utils import _device

from torchgauge.target.tensors import nbytes

_HOOKS = tuple(name for name in vars(_module_globals) if name.startswith("_global_"))
_AUTOCAST_DEVICES = ("cpu", "cuda")


@dataclasses.dataclass
class Kept:
    """What had to be copied in order to be put back: `host` and `device`, in bytes."""

    host: int = 0
    device: int = 0


@contextlib.contextmanager
def untouched(model: Callable[..., Any], *, training: bool = False) -> Iterator[Kept]:
    """Put the model and the process's torch state back as they were, on success and on error.

    The model: attributes of every submodule (with them training flags, hooks, registered
    parameters, buffers and caches made by a forward), buffer values, `requires_grad` and `.grad`
    of parameters; their values too with `training`, which copies them to the host. The process:
    global module hooks, random states (torch, CUDA where initialised, numpy, random), grad mode,
    autocast, default dtype and device, thread count, warnings filters. Not put back: a lazy module
    stays initialised, and state below a submodule's own attributes and containers stays changed.
    Any callable is allowed; of a module's bound method the module is kept.
    """
    kept = Kept()
    with warnings.catch_warnings(), contextlib.ExitStack() as undo:
        undo.callback(_process())
        undo.callback(_randomness())
        module = module_of(model)
        if module is not None:
            undo.callback(_structure(module))
            undo.callback(_gradients(module))
            undo.callback(_values(module, kept, parameters=training))
        yield kept


@contextlib.contextmanager
def evaluation(model: Callable[..., Any]) -> Iterator[Kept]:
    """`untouched`, with the model in evaluation mode and under torch.inference_mode."""
    with untouched(model) as kept:
        module = module_of(model)
        if module is not None:
            module.eval()
        with torch.inference_mode():
            yield kept


@contextlib.contextmanager
def training(model: Callable[..., Any]) -> Iterator[Kept]:
    """`untouched`, with gradients on and the model in training mode.

    A model that is in training mode already keeps its flags: parts frozen on purpose (batch
    normalisation in evaluation mode) are measured frozen.
    """
    with untouched(model, training=True) as kept:
        module = module_of(model)
        if module is not None and not module.training:
            module.train()
        with torch.inference_mode(mode=False):  # which turns gradients on as well
            yield kept


def module_of(model: Callable[..., Any]) -> torch.nn.Module | None:
    """Return the module behind a target: itself, or the one a bound method belongs to."""
    for owner in (model, getattr(model, "__self__", None)):
        if isinstance(owner, torch.nn.Module):
            return owner
    return None


def _process() -> Callable[[], None]:
    """Save what torch holds per process or thread; put back only what differs."""
    states: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (torch.get_default_dtype, torch.set_default_dtype),
        (lambda: _device.CURRENT_DEVICE, torch.set_default_device),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    ]
    for kind in _AUTOCAST_DEVICES:
        states += [
            (_bound(torch.is_autocast_enabled, kind), _bound(torch.set_autocast_enabled, kind)),
            (_bound(torch.get_autocast_dtype, kind), _bound(torch.set_autocast_dtype, kind)),
        ]
    before = [(read, write, read()) for read, write in states]
    hooks = [(vars(_module_globals)[name], _copy(vars(_module_globals)[name])) for name in _HOOKS]

    def restore() -> None:
        for read, write, value in before:
            if read() != value:
                write(value)
        for holder, content in hooks:
            _refill(holder, content)

    return restore


def _bound(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
    return lambda *value: function(kind, *value)


def _randomness() -> Callable[[], None]:
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    # Asking a CUDA that nobody has used yet would initialise it: that is a change by itself.
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]

    def restore() -> None:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)

    return restore


def _structure(model: torch.nn.Module) -> Callable[[], None]:
    """Save every submodule's attributes; containers among them one level deep."""
    before = []
    for module in model.modules():
        attributes = dict(vars(module))
        contents = [(value, _copy(value)) for value in attributes.values() if _holds(value)]
        before.append((module, type(module), module.training, attributes, contents))

    def restore() -> None:
        for module, kind, flag, attributes, contents in before:
            # A lazy module changes its class when it gets its parameters, and takes away the
            # hooks that would make them: with those put back it would be broken.
            if type(module) is kind and not _mirrors(module):
                for holder, content in contents:
                    _refill(holder, content)
                _refill(vars(module), attributes)
            if module.training is not flag:  # no attribute of a ScriptModule
                module.training = flag

    return restore


def _mirrors(module: torch.nn.Module) -> bool:
    """Whether attributes mirror the state of C++ objects, which cannot be put back with them."""
    return type(module).__module__.startswith(("torch.distributed.", "torch.nn.parallel."))


def _holds(value: Any) -> bool:
    return type(value) in (dict, OrderedDict, list, set)


def _copy(value: Any) -> Any:
    return value.copy() if _holds(value) else value


def _refill(holder: Any, content: Any) -> None:
    """Give `holder` its former content, and leave it alone where it still has it.

    Compared by identity: tensors have no truth value, and caches keyed on an attribute
    dictionary's version (Dynamo's guards) stay valid.
    """
    if not _holds(holder) or _same(holder, content):
        return
    holder.clear()
    if isinstance(holder, list):
        holder.extend(content)
    else:
        holder.update(content)


def _same(one: Any, other: Any) -> bool:
    if len(one) != len(other):
        return False
    if isinstance(one, set):
        return bool(one == other)
    if isinstance(one, dict) and not all(map(is_, one.values(), other.values())):
        return False
    return all(map(is_, one, other))


def _gradients(model: torch.nn.Module) -> Callable[[], None]:
    before = [(p, p.requires_grad, None if is_lazy(p) else p.grad) for p in model.parameters()]

    def restore() -> None:
        for parameter, required, gradient in before:
            if parameter.requires_grad is not required:
                parameter.requires_grad_(required)
            if parameter.grad is not gradient:
                parameter.grad = gradient

    return restore


def _values(model: torch.nn.Module, kept: Kept, *, parameters: bool) -> Callable[[], None]:
    """Copy buffers where they are, parameters to the host: they may fill a device to the half."""
    before = []
    with torch.inference_mode():
        for buffer in _real(model.buffers()):
            saved = buffer.detach().clone()
            before.append((buffer, saved))
            _count(kept, saved)
        for parameter in _real(model.parameters()) if parameters else ():
            saved = parameter.detach().to("cpu", copy=True)
            before.append((parameter, saved))
            _count(kept, saved)

    def restore() -> None:
        # Inference mode may write to its own tensors as well as to ordinary ones.
        with torch.inference_mode():
            for tensor, saved in before:
                # An unneeded write would invalidate a graph the caller is about to differentiate.
                if not torch.equal(tensor.to(saved.device), saved):
                    tensor.copy_(saved)

    return restore


def _real(tensors: Iterator[torch.Tensor]) -> list[torch.Tensor]:
    return [t for t in tensors if not is_lazy(t) and t.device.type != "meta"]


def _count(kept: Kept, saved: torch.Tensor) -> None:
    if saved.device.type == "cpu":
        kept.host += nbytes(saved)
    else:
        kept.device += nbytes(saved)
