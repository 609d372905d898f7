"""The layer scope: be told of every module call, by wrapping `nn.Module.__call__` for a while."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import nn

from torchgauge.measure.internals import never_compiled


class Observer(Protocol):
    """Told before and after each module call, on the thread that makes it."""

    def enter(self, module: nn.Module) -> Any:
        """Take the module that is about to run; what is returned is handed to `leave`."""

    def leave(self, token: Any) -> None:
        """Take note that the call has ended, by returning or by raising."""


_lock = threading.Lock()
_observers: tuple[Observer, ...] = ()
_originals: dict[type[nn.Module], Any] = {}
_pending = threading.local()  # the module whose overridden `__call__` may still reach the base


@contextlib.contextmanager
def observed(observer: Observer, modules: Iterable[nn.Module] = ()) -> Iterator[None]:
    """Tell `observer` of every module call of this process until the block ends.

    `modules` are those whose classes may override `__call__`: such a class is wrapped as well, and
    a call that goes on to `nn.Module.__call__` is told of once. Blocks may overlap, on any threads.
    What Dynamo compiles inside is neither told of nor broken up.
    """
    global _observers
    overriding: set[type[nn.Module]] = {
        owner
        for kind in {type(module) for module in modules}
        for owner in kind.__mro__
        if owner is not nn.Module and issubclass(owner, nn.Module) and "__call__" in vars(owner)
    }
    with _lock:
        _observers = (*_observers, observer)
        classes: list[type[nn.Module]] = [nn.Module, *overriding]
        for owner in classes:
            if owner not in _originals and callable(vars(owner)["__call__"]):
                _originals[owner] = vars(owner)["__call__"]
                wrapper = _wrapped(_originals[owner], base=owner is nn.Module)
                type.__setattr__(owner, "__call__", wrapper)
    try:
        yield
    finally:
        with _lock:
            _observers = tuple(one for one in _observers if one is not observer)
            if not _observers:
                for owner, original in _originals.items():
                    type.__setattr__(owner, "__call__", original)
                _originals.clear()


def _wrapped(original: Callable[..., Any], *, base: bool) -> Callable[..., Any]:
    compiling = torch.compiler.is_compiling
    pending = _pending

    # The first parameter must be named self: torch's Python tracer reads that local by its name.
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if compiling():
            return original(self, *args, **kwargs)
        if getattr(pending, "module", None) is self:
            pending.module = None
            return original(self, *args, **kwargs)
        observers = _observers
        tokens = [observer.enter(self) for observer in observers]
        if not base:
            pending.module = self
        try:
            return original(self, *args, **kwargs)
        finally:
            if not base:
                pending.module = None
            for observer, token in zip(observers, tokens, strict=True):
                observer.leave(token)

    never_compiled(__call__)
    return __call__
