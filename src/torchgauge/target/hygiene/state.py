"""Mutable objects below a module's attributes, a callable's, or in inputs: found, noted, put back.

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

from torchgauge.signals import every
from torchgauge.target.hygiene import contents
from torchgauge.target.hygiene.contents import Kind
from torchgauge.target.hygiene.kept import Kept, Role

# Objects that are looked at; what lies behind so many is a program's state, not a model's.
MOST = 200_000
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


class Way(NamedTuple):
    """How objects of one class are noted: their content, their attributes, their slots."""

    content: Kind | None = None
    holds: bool = False
    attributes: bool = False
    slots: Kind | None = None


class _Held(NamedTuple):
    root: str
    kind: Kind
    holder: Any
    content: Any


class State:
    """What is mutable below some roots, by the names of these, as it was.

    `known` are the ids of what others look after. Copies of arrays are counted in `kept`, where
    what changed and could not be put back is noted too.
    """

    def __init__(self, kept: Kept, known: Iterable[int] = ()) -> None:
        self._kept = kept
        self._tensors: list[tuple[str, torch.Tensor]] = []
        self._held: list[_Held] = []
        self._seen = set(known)
        self._ways: dict[type, Way] = {}
        self._left = COPIED

    def note(self, root: str, value: Any) -> None:
        """Note all that is mutable in a value and below it."""
        pending, seen = [value], self._seen
        while pending and len(seen) < MOST:
            item = pending.pop()
            kind = type(item)
            if kind in ATOMS or id(item) in seen:
                continue
            if kind is tuple and ATOMS.issuperset(map(type, item)):
                continue
            seen.add(id(item))
            # What cannot be read (a closed stream) cannot be put back either.
            with contextlib.suppress(Exception):
                pending += self._note(root, item, kind)

    def named(self) -> list[tuple[Role, str, torch.Tensor]]:
        """Return the tensors that were found, as `save_values` takes them."""
        return [
            ("input" if root == INPUT else "attribute", root, one) for root, one in self._tensors
        ]

    def restore(self) -> None:
        """Put back what differs; raises an error after all else has been put back."""
        every(partial(self._restore, held) for held in self._held)

    def _restore(self, held: _Held) -> None:
        if held.kind.same(held.holder, held.content):
            return
        if held.kind.refill is None:
            self._changed(held.root)
        else:
            held.kind.refill(held.holder, held.content)

    def _changed(self, root: str) -> None:
        if root == INPUT:
            self._kept.inputs[root] = False
        else:
            self._kept.altered.append(root)

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

    def _hold(self, root: str, kind: Kind, holder: Any) -> Any:
        content = kind.note(holder)
        self._held.append(_Held(root, kind, holder, content))
        return content

    def _object(self, root: str, item: Any, kind: type) -> Iterator[Any]:
        way = self._ways.get(kind) or self._ways.setdefault(kind, way_of(kind))
        if way.content is not None:
            content = self._hold(root, way.content, item)
            if way.holds:  # of a dictionary keys and values
                yield from content[1] if issubclass(kind, dict) else content
        if way.attributes and (attributes := attributes_of(item)) is not None:
            yield from self._hold(root, contents.DICT, attributes)[1]
        if way.slots is not None:
            yield from self._hold(root, way.slots, item)

    def _buffer(self, root: str, item: Any) -> Iterable[Any]:
        if isinstance(item, np.ndarray):
            if item.dtype == object:
                return self._hold(root, contents.OBJECTS, item)  # type: ignore[no-any-return]
            if item.dtype.hasobject or not item.flags.writeable:
                return ()
        size = item.nbytes if isinstance(item, np.ndarray) else memoryview(item).nbytes
        kind = contents.LARGE
        if size <= self._left:
            self._left -= size
            self._kept.host += size
            kind = contents.NUMBERS if isinstance(item, np.ndarray) else contents.ARRAY
            kind = contents.BYTES if isinstance(item, bytearray) else kind
        self._hold(root, kind, item)
        return ()


def attributes_of(item: Any) -> dict[str, Any] | None:
    """Return an object's own dictionary, past what its class makes of `__dict__`."""
    try:
        found = object.__getattribute__(item, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def way_of(kind: type) -> Way:
    """Return how objects of a class are noted."""
    if issubclass(kind, _CLOSED):
        return Way()
    if kind in contents.ITERATORS:
        return Way(contents.ITERATOR)
    content, holds = next(
        ((how, holds) for base, how, holds in contents.KINDS if issubclass(kind, base)),
        (None, False),
    )
    if not is_plain(kind):
        return Way(content, holds)
    members = contents.slots(kind)
    return Way(content, holds, True, contents.of_slots(members) if members else None)


def is_plain(kind: type) -> bool:
    """Tell whether a class was made by a program, and none of its bases stands for a resource."""
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
