"""Walks what a value holds: containers, attributes, slots and dataclass fields, however nested.

No method of a user's class is called (`kinds.py`), so a length, an iterator or a property that
raises is not asked. Left alone is what stands for something outside of Python or is shared by more
than a value: objects of Python's own library (threads, locks, files, loggers), of torch (process
groups, optimizers), and, unless `functions`, what functions close over.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import types
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from torchgauge import torch_private
from torchgauge.targets.contents import kinds
from torchgauge.targets.contents.kinds import Kind

# Objects that are visited; more than these are a program's state, not a model's or an input's.
MAX_OBJECTS = 200_000
# Nothing is in these.
ATOMS: frozenset[type] = frozenset(
    {
        int, float, bool, str, bytes, complex, type(None), type(...), type, range, slice,
        types.FunctionType, types.BuiltinFunctionType,
        torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format,
    }
)  # fmt: skip
_ATOMS_BUT_FUNCTIONS = ATOMS - frozenset[type]({types.FunctionType})
HEAP = 1 << 9  # of `type.__flags__`: a class that a program made
# Modules of Python whose classes hold what they are given, and nothing else.
_OPEN = frozenset({"abc", "builtins", "collections", "collections.abc", "dataclasses", "typing"})
_OPEN_OF_TORCH = ("torch.distributions.", "torch.nn.")
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_CLOSED = (type, types.ModuleType, BaseException)
_LIBRARIES = frozenset({"numpy", "torch", "torchgauge"})
# What these attributes hold has its name without them.
_UNNAMED = frozenset({"_parameters", "_buffers", "_modules"})


class Handling(NamedTuple):
    """How objects of one class are read and noted: their content, their attributes, their slots.

    `hides`: they have fields of C beside these, which are not read.
    """

    content: Kind | None = None
    follow_content: bool = False
    attributes: bool = False
    slots: Kind | None = None
    hides: bool = False


class Entry(NamedTuple):
    """An object, the keys and names that lead to it, and whether it is in an object's attributes.

    `handling` says how it was read; that of a tensor, or of what is not entered, is empty.
    """

    path: tuple[str, ...]
    item: Any
    in_object: bool
    handling: Handling

    @property
    def name(self) -> str:
        """The path as text."""
        return ".".join(filter(None, self.path))


_NO_HANDLING = Handling()
_Children = list[tuple[str, Any, bool]]


class Walk:
    """Yields each object below some roots once, a holder before what it holds, atoms left out.

    With `repeated` tensors come as often as they are held, without `objects` the content of
    containers alone, with `functions` what functions close over. Objects of `outer` classes come
    as often as they are held, and are not entered. `known_ids` are objects that were visited.
    `unread` has what could not be read; `is_cut` says that objects were too many. `holders` are,
    where given, the ids of who holds an object, by its id.
    """

    def __init__(
        self,
        known_ids: Iterable[int] = (),
        *,
        repeated: bool = False,
        objects: bool = True,
        functions: bool = False,
        outer: tuple[type, ...] = (),
        holders: dict[int, list[int]] | None = None,
    ) -> None:
        self.unread: list[Entry] = []
        self._seen_ids = set(known_ids)
        self._objects = objects
        self._atoms = _ATOMS_BUT_FUNCTIONS if functions else ATOMS
        self._outer = outer
        self._often = (*outer, torch.Tensor) if repeated else outer
        self._holders = holders
        self._handlings: dict[type, Handling] = {}
        self.is_cut = False
        self._temporary_children: list[
            _Children
        ] = []  # held: its addresses must not be given to others

    def __call__(self, root: Any, *path: str) -> Iterator[Entry]:
        """Walk one root, whose name begins with `path`."""
        pending: list[tuple[tuple[str, ...], Any, bool]] = [(path, root, False)]
        seen_ids, leaf_types = self._seen_ids, (torch.Tensor, *self._outer)
        while pending:
            path, item, in_object = pending.pop()
            kind = type(item)
            if kind in self._atoms or (id(item) in seen_ids and not issubclass(kind, self._often)):
                continue
            seen_ids.add(id(item))
            if issubclass(kind, leaf_types):
                yield Entry(path, item, in_object, _NO_HANDLING)
                continue
            if kind not in self._handlings:
                self._handlings[kind] = handling_of(kind)
            entry = Entry(path, item, in_object, self._handlings[kind])
            yield entry
            if len(seen_ids) >= MAX_OBJECTS:
                self.is_cut = True
                self.unread.append(entry)
                return
            pending += [
                ((*path, key), child, in_object or in_attribute)
                for key, child, in_attribute in reversed(self._children(entry))
            ]

    def _children(self, entry: Entry) -> _Children:
        """Return what an object holds, each with its key and whether it is an attribute."""
        try:
            children = self._read(entry)
        except Exception:  # noqa: BLE001 - a closed stream, and what a registered class raises
            self.unread.append(entry)
            return []
        if self._holders is not None:
            for _, child, _ in children:
                self._holders.setdefault(id(child), []).append(id(entry.item))
        return children

    def _read(self, entry: Entry) -> _Children:
        item, handling, kind = entry.item, entry.handling, type(entry.item)
        atoms = self._atoms
        children = [(key, child, False) for key, child in _content(item, handling, atoms)]
        if atoms is not ATOMS:
            children += [(key, child, False) for key, child in closed_over(item)]
        if not self._objects:
            return children
        if handling.hides:
            self.unread.append(entry)
        attributes = attributes_of(item) if handling.attributes else None
        named = list((attributes or {}).items())
        if handling.slots is not None:
            names = [slot.__name__ for slot in kinds.slots(kind)]
            named += zip(names, handling.slots.note(item), strict=True)
        elif attributes is None and not (children or handling.follow_content):
            return self._opaque(entry)
        # A dataclass that is a dictionary too has its fields in both.
        content_ids = {id(child) for _, child, _ in children} if named else ()
        return children + [
            ("" if _is_unnamed(kind, name) else name, value, not issubclass(kind, UserDict))
            for name, value in named
            if type(value) not in atoms and id(value) not in content_ids
        ]

    def _opaque(self, entry: Entry) -> _Children:
        """Return what a class says that its objects hold; where it does not, take note of that."""
        item, kind = entry.item, type(entry.item)
        parts: Iterable[tuple[Any, Any]] = ()
        if kind in torch_private.pytree_nodes:
            parts = enumerate(torch_private.pytree_nodes[kind].flatten_fn(item)[0])
        elif issubclass(kind, Mapping):
            parts = item.items()
        elif not _is_known(kind):
            self.unread.append(entry)
        children = [(_key(key), value, False) for key, value in parts]
        self._temporary_children.append(children)
        return children


def tensors_in(
    value: Any, *, objects: bool = True, repeated: bool = False
) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, without those of modules; see `Walk`."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    for entry in Walk(objects=objects, repeated=repeated, outer=(nn.Module,))(value):
        if isinstance(entry.item, torch.Tensor):
            yield entry.item


def _content(item: Any, handling: Handling, without: frozenset[type]) -> Iterable[tuple[str, Any]]:
    """Return the content of a container by key, `without` these types."""
    kind = type(item)
    values: Any = ()
    keys: Any = None
    if issubclass(kind, tuple):
        values = tuple.__iter__(item)
        fields = getattr(kind, "_fields", None)
        keys = fields if type(fields) is tuple and len(fields) == tuple.__len__(item) else None
    elif issubclass(kind, functools.partial):
        keys, values = ("func", "args", "keywords"), (item.func, item.args, item.keywords)
    elif issubclass(kind, np.ndarray):
        values = item.flat if item.dtype == object else ()
    elif handling.content is not None and handling.follow_content:
        values = handling.content.note(item)
        if issubclass(kind, dict):
            keys, values = values
    pairs = enumerate(values) if keys is None else zip(keys, values, strict=True)
    return [(_key(key), value) for key, value in pairs if type(value) not in without]


def closed_over(item: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a function of a program closes over and reads of its file, by name."""
    if type(item) is not types.FunctionType or not _foreign(item):
        return
    code = item.__code__
    for name, cell in zip(code.co_freevars, item.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a variable that has no value yet
            yield name, cell.cell_contents
    for name in code.co_names:
        yield name, item.__globals__.get(name)
    yield "defaults", item.__defaults__
    yield "defaults", item.__kwdefaults__


def _key(key: Any) -> str:
    return str(key) if type(key) in (str, int) else type(key).__name__


def _is_unnamed(kind: type, name: str) -> bool:
    return (issubclass(kind, nn.Module) and name in _UNNAMED) or (
        issubclass(kind, UserDict) and name == "data"
    )


def _is_known(kind: type) -> bool:
    """Tell whether objects of a class hide nothing: Python's, NumPy's, those without state."""
    top = str(kind.__module__).partition(".")[0]
    if issubclass(kind, (torch.ScriptObject, types.GeneratorType, *kinds.ITERATORS)):
        return False
    has_slots = any("__slots__" in vars(base) for base in kind.__mro__)
    return top in sys.stdlib_module_names or top in _LIBRARIES or has_slots


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
    if kind in kinds.ITERATORS:
        return Handling(kinds.ITERATOR)
    content, follow_content = next(
        ((note, follow) for base, note, follow in kinds.KINDS if issubclass(kind, base)),
        (None, False),
    )
    if not is_plain(kind):
        return Handling(content, follow_content)
    members = kinds.slots(kind)
    slots = kinds.slots_kind(members) if members else None
    hides = any(_adds_fields(base) for base in kind.__mro__ if _foreign(base))
    return Handling(content, follow_content, attributes=True, slots=slots, hides=hides)


def _adds_fields(kind: type) -> bool:
    """Whether objects of a class have fields that are none of Python's, as Cython's have."""
    base = kind.__base__
    is_larger = base is not None and kind.__basicsize__ > base.__basicsize__
    return is_larger and vars(kind).keys().isdisjoint({"__dict__", "__slots__", "__weakref__"})


def is_plain(kind: type) -> bool:
    """Tell whether a program defined the class, and none of its bases stands for a resource."""
    if issubclass(kind, _NAMESPACES):
        return True
    if not kind.__flags__ & HEAP:
        return False
    if issubclass(kind, nn.Module):
        return not mirrors(kind)
    return all(base.__module__ in _OPEN or _foreign(base) for base in kind.__mro__)


def mirrors(kind: type) -> bool:
    """Whether attributes mirror the state of C++ objects, which cannot be put back with them."""
    return kind.__module__.startswith(("torch.distributed.", "torch.nn.parallel."))


def _foreign(kind: type | types.FunctionType) -> bool:
    if f"{kind.__module__}.".startswith(_OPEN_OF_TORCH):
        return True
    top = str(kind.__module__).partition(".")[0]
    return top not in sys.stdlib_module_names and top not in _LIBRARIES
