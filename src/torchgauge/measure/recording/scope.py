"""The layer scope: see every module call, by wrapping `nn.Module.__call__` for a while."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from torchgauge.measure.work.internals import never_compiled
from torchgauge.signals import restoring
from torchgauge.targets.hygiene.functions import ORIGINAL
from torchgauge.targets.hygiene.recursion import deeper, recursion_limit

Call = Callable[..., Any]
RAISED = object()


class Wrap(Protocol):
    """Returns what is called in place of a class's `__call__`.

    Its first parameter must be named self: torch's Python tracer reads that local by its name. It
    must do nothing but pass on while `torch.compiler.is_compiling()`, and for modules whose type is
    in `inner`: their own class overrides `__call__`, is wrapped as well, and came first.
    """

    def __call__(self, original: Call, inner: frozenset[type[nn.Module]]) -> Call:
        """Wrap `original`, that of nn.Module or of a class that overrides it."""


class Observer(Protocol):
    """Told before and after each module call, on the thread that makes it."""

    def enter(self, module: nn.Module, arguments: Any) -> Any:
        """Take the module that is about to run; what is returned is handed to `leave`."""

    def leave(self, token: Any, outputs: Any) -> None:
        """Take note that the call has ended, by returning `outputs` or, RAISED, by raising."""


class _Around(NamedTuple):
    """A wrap, the class whose `__call__` a module's class uses, and the only classes; None: all."""

    wrap: Wrap
    owners: dict[type[nn.Module], type[nn.Module]]
    only: frozenset[type[nn.Module]] | None

    @property
    def classes(self) -> set[type[nn.Module]]:
        """The classes that are wrapped."""
        return {nn.Module, *self.owners.values()} if self.only is None else {*self.only}


_lock = threading.Lock()
_wraps: tuple[_Around, ...] = ()
_originals: dict[type[nn.Module], Call] = {}


@restoring
def wrapped(
    wrap: Wrap, modules: Iterable[nn.Module] = (), *, only: Iterable[type[nn.Module]] | None = None
) -> Iterator[None]:
    """Call what `wrap` makes in place of every module's `__call__` until the block ends.

    `modules` are those whose classes may override `__call__`: such a class is wrapped as well.
    With `only` modules of these classes alone are wrapped, and calls of others cost nothing.
    Blocks may overlap, on any threads. Dynamo neither compiles what is wrapped around nor breaks up
    what it compiles inside. Modules nest as deep as without: a call of one takes four frames of
    torch's, and a fifth or, where its class overrides `__call__`, a sixth of what wraps it.
    """
    global _wraps
    classes = None if only is None else frozenset(only)
    added = _Around(wrap, _overriding(modules) if only is None else {}, classes)
    with _lock:
        _wraps = (*_wraps, added)
        _install()
    try:
        with deeper(recursion_limit() // 2):
            yield
    finally:
        with _lock:
            _wraps = tuple(active for active in _wraps if active is not added)
            _install()


def _unwrap_in_child() -> None:
    """Give a forked process modules that nothing is around; a thread may have held the lock."""
    global _lock, _wraps
    _lock, _wraps = threading.Lock(), ()
    _install()


os.register_at_fork(after_in_child=_unwrap_in_child)


def observed(
    observer: Observer, modules: Iterable[nn.Module] = ()
) -> contextlib.AbstractContextManager[None]:
    """Tell `observer` of every module call of this process, of each once, until the block ends."""
    compiling = torch.compiler.is_compiling
    for callback in (observer.enter, observer.leave):
        if inspect.ismethod(callback):
            never_compiled(callback.__func__, below=True)

    def wrap(original: Call, inner: frozenset[type[nn.Module]]) -> Call:
        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if compiling() or type(self) in inner:
                return original(self, *args, **kwargs)
            token = observer.enter(self, (args, kwargs))
            outputs = RAISED
            try:
                outputs = original(self, *args, **kwargs)
                return outputs
            finally:
                observer.leave(token, outputs)

        return __call__

    return wrapped(wrap, modules)


def _overriding(modules: Iterable[nn.Module]) -> dict[type[nn.Module], type[nn.Module]]:
    """Return the class whose `__call__` a module's class uses, where that is not nn.Module's."""
    owners = {}
    for kind in {type(module) for module in modules}:
        owner = next(base for base in kind.__mro__ if "__call__" in vars(base))
        if owner is not nn.Module and issubclass(owner, nn.Module):
            owners[kind] = owner
    return owners


def _install() -> None:
    """Give each class its own `__call__` inside of all that wrap it, or back as it was."""
    wrapped_classes: set[type[nn.Module]] = set().union(*(around.classes for around in _wraps))
    for owner in wrapped_classes - _originals.keys():
        _originals[owner] = vars(owner).get("__call__") or _inherited(owner)
    for owner, original in list(_originals.items()):
        call = original
        for around in _wraps:
            if owner in around.classes:
                inner = frozenset(k for k, first in around.owners.items() if first is not owner)
                call = around.wrap(call, inner)
                never_compiled(call)
                setattr(call, ORIGINAL, original)
        if owner not in wrapped_classes:
            del _originals[owner]
        if call is original and hasattr(original, _INHERITED):
            type.__delattr__(owner, "__call__")
        else:
            type.__setattr__(owner, "__call__", call)


_INHERITED = "_torchgauge_inherited"


def _inherited(owner: type[nn.Module]) -> Call:
    """Return what calls the `__call__` that a class inherits, whatever that is at the time."""

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        return super(owner, self).__call__(*args, **kwargs)  # type: ignore[misc]

    never_compiled(__call__)
    setattr(__call__, _INHERITED, True)
    return __call__
