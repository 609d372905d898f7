"""Finds, notes and restores mutable objects below a module's or callable's attributes and inputs.

Containers of every kind, arrays, generators of random numbers, and objects of classes of the user's
and of other libraries, however nested. Left alone is what stands for something outside of Python or
is shared by more than a model: objects of Python's own library (threads, locks, files, loggers), of
torch (process groups, optimizers), and what functions close over.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import sys
import types
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from torchgauge.signals import run_all
from torchgauge.targets.hygiene import contents
from torchgauge.targets.hygiene.contents import Kind
from torchgauge.targets.hygiene.kept import Restoration, Role

# Objects that are visited; more than these are a program's state, not a model's.
MAX_OBJECTS = 200_000
COPIED = 1 << 25  # bytes of arrays
INPUT = "the inputs"
# Nothing mutable is in these, or nothing that is a model's.
ATOMS = frozenset(
    {
        int, float, bool, str, bytes, complex, type(None), type(...), type, range, slice,
        types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType,
        torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format,
    }
)  # fmt: skip
_HEAP = 1 << 9  # of `type.__flags__`: a class that a program made
# Modules of Python whose classes hold what they are given, and nothing else.
_OPEN = frozenset({"abc", "builtins", "collections", "collections.abc", "dataclasses", "typing"})
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_CLOSED = (type, types.ModuleType, BaseException)
_LIBRARIES = frozenset({"numpy", "torch", "torchgauge"})
_BUFFERS = (np.ndarray, bytearray, array.array)


class Handling(NamedTuple):
    """How objects of one class are noted: their content, their attributes, their slots."""

    content: Kind | None = None
    follow_content: bool = False
    attributes: bool = False
    slots: Kind | None = None


class _Noted(NamedTuple):
    root: str
    kind: Kind
    container: Any
    content: Any


class State:
    """The content of all mutable objects below some roots, by the names of the roots.

    `known_ids` are objects that other parts restore. Copies of arrays are counted in `restoration`,
    where what changed and could not be put back is noted too.
    """

    def __init__(self, restoration: Restoration, known_ids: Iterable[int] = ()) -> None:
        self._restoration = restoration
        self._tensors: list[tuple[str, torch.Tensor]] = []
        self._noted: list[_Noted] = []
        self._seen_ids = set(known_ids)
        self._handlings: dict[type, Handling] = {}
        self._copy_budget = COPIED

    def note(self, root: str, value: Any) -> None:
        """Note all that is mutable in a value and below it."""
        pending, seen_ids = [value], self._seen_ids
        while pending and len(seen_ids) < MAX_OBJECTS:
            item = pending.pop()
            kind = type(item)
            if kind in ATOMS or id(item) in seen_ids:
                continue
            if kind is tuple and ATOMS.issuperset(map(type, item)):
                continue
            seen_ids.add(id(item))
            # What cannot be read (a closed stream) cannot be put back either.
            with contextlib.suppress(Exception):
                pending += self._note(root, item, kind)

    def named(self) -> list[tuple[Role, str, torch.Tensor]]:
        """Return the tensors that were found, as `save_values` takes them."""
        return [
            ("input" if root == INPUT else "attribute", root, tensor)
            for root, tensor in self._tensors
        ]

    def differs(self) -> bool:
        """Whether anything differs from what was noted."""
        return any(not noted.kind.matches(noted.container, noted.content) for noted in self._noted)

    def restore(self) -> None:
        """Put back what differs; raises an error after everything else has been put back."""
        run_all(partial(self._restore, noted) for noted in self._noted)

    def _restore(self, noted: _Noted) -> None:
        if noted.kind.matches(noted.container, noted.content):
            return
        if noted.kind.refill is None:
            self._changed(noted.root)
        else:
            noted.kind.refill(noted.container, noted.content)

    def _changed(self, root: str) -> None:
        if root == INPUT:
            self._restoration.inputs[root] = False
        else:
            self._restoration.altered.append(root)

    def _note(self, root: str, item: Any, kind: type) -> Iterable[Any]:
        """Note one object, and return what it holds."""
        if issubclass(kind, torch.Tensor):
            self._tensors.append((root, item))
            return ()
        if issubclass(kind, tuple):
            return tuple.__iter__(item)
        if issubclass(kind, _BUFFERS):
            return self._buffer(root, item)
        return self._object(root, item, kind)

    def _hold(self, root: str, kind: Kind, container: Any) -> Any:
        content = kind.note(container)
        self._noted.append(_Noted(root, kind, container, content))
        return content

    def _object(self, root: str, item: Any, kind: type) -> Iterator[Any]:
        handling = self._handlings.get(kind) or self._handlings.setdefault(kind, handling_of(kind))
        if handling.content is not None:
            content = self._hold(root, handling.content, item)
            if handling.follow_content:  # of a dictionary keys and values
                yield from content[1] if issubclass(kind, dict) else content
        if handling.attributes and (attributes := attributes_of(item)) is not None:
            yield from self._hold(root, contents.DICT, attributes)[1]
        if handling.slots is not None:
            yield from self._hold(root, handling.slots, item)

    def _buffer(self, root: str, item: Any) -> Iterable[Any]:
        if isinstance(item, np.ndarray):
            if item.dtype == object:
                return self._hold(root, contents.OBJECTS, item)  # type: ignore[no-any-return]
            if item.dtype.hasobject or not item.flags.writeable:
                return ()
        size = item.nbytes if isinstance(item, np.ndarray) else memoryview(item).nbytes
        kind = contents.LARGE
        if size <= self._copy_budget:
            self._copy_budget -= size
            self._restoration.host += size
            kind = contents.NUMBERS if isinstance(item, np.ndarray) else contents.ARRAY
            kind = contents.BYTES if isinstance(item, bytearray) else kind
        self._hold(root, kind, item)
        return ()


def attributes_of(item: Any) -> dict[str, Any] | None:
    """Return an object's own dictionary, past what its class makes of `__dict__`."""
    try:
        attributes = object.__getattribute__(item, "__dict__")
    except AttributeError:
        return None
    return attributes if type(attributes) is dict else None


def handling_of(kind: type) -> Handling:
    """Return how objects of a class are noted."""
    if issubclass(kind, _CLOSED):
        return Handling()
    if kind in contents.ITERATORS:
        return Handling(contents.ITERATOR)
    content, follow_content = next(
        ((note, follow) for base, note, follow in contents.KINDS if issubclass(kind, base)),
        (None, False),
    )
    if not is_plain(kind):
        return Handling(content, follow_content)
    members = contents.slots(kind)
    return Handling(
        content, follow_content, True, contents.slots_kind(members) if members else None
    )


def is_plain(kind: type) -> bool:
    """Tell whether a program defined the class, and none of its bases stands for a resource."""
    if issubclass(kind, _NAMESPACES):
        return True
    if not kind.__flags__ & _HEAP:
        return False
    if issubclass(kind, nn.Module):
        return not mirrors(kind)
    return all(base.__module__ in _OPEN or _foreign(base) for base in kind.__mro__)


def mirrors(kind: type) -> bool:
    """Whether attributes mirror the state of C++ objects, which cannot be put back with them."""
    return kind.__module__.startswith(("torch.distributed.", "torch.nn.parallel."))


def _foreign(kind: type) -> bool:
    top = str(kind.__module__).partition(".")[0]
    return top not in sys.stdlib_module_names and top not in _LIBRARIES
