"""How the content of mutable objects is noted, compared and put back, by kind of object.

Methods of the base classes are used throughout, so that no code of a user's subclass is run.
"""

from __future__ import annotations

import array
import io
import itertools
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from operator import is_
from types import GeneratorType, MemberDescriptorType
from typing import Any, NamedTuple

import numpy as np
import torch

SAMPLED = 4096  # elements compared of an array that is too large to be copied
_UNSET = object()


class Kind(NamedTuple):
    """How one kind of object is noted (`note`), compared (`matches`) and put back (`refill`).

    Without `refill` a change can be reported and not undone.
    """

    note: Callable[[Any], Any]
    matches: Callable[[Any, Any], bool]
    refill: Callable[[Any, Any], None] | None = None


def identical(first: Iterable[Any], second: Iterable[Any]) -> bool:
    """Tell whether two collections of one length hold the same objects in the same order."""
    return all(map(is_, first, second))


def dict_kind(base: type[dict[Any, Any]]) -> Kind:
    """Return the kind of `base` (dict or OrderedDict) and of what inherits from it."""

    def matches(container: Any, content: Any) -> bool:
        keys, values = content
        return (
            len(keys) == dict.__len__(container)
            and identical(base.keys(container), keys)
            and identical(base.values(container), values)
        )

    def refill(container: Any, content: Any) -> None:
        base.clear(container)
        for key, value in zip(*content, strict=True):
            base.__setitem__(container, key, value)

    return Kind(
        lambda container: (list(base.keys(container)), list(base.values(container))),
        matches,
        refill,
    )


def _refill_list(container: Any, content: Any) -> None:
    list.__setitem__(container, slice(None), content)


def _refill_set(container: Any, content: Any) -> None:
    set.clear(container)
    set.update(container, content)


def _refill_deque(container: Any, content: Any) -> None:
    deque.clear(container)
    deque.extend(container, content)


def _refill_bytes(container: Any, content: Any) -> None:
    container[:] = content


def _refill_array(container: Any, content: Any) -> None:
    del container[:]
    container.frombytes(content)


def _refill_stream(container: Any, content: Any) -> None:
    text, position = content
    container.seek(0)
    container.truncate()
    container.write(text)
    container.seek(position)


def _same_numbers(container: Any, content: Any) -> bool:
    same_type = container.shape == content.shape and container.dtype == content.dtype
    return bool(same_type and container.tobytes() == content.tobytes())


def _same_objects(container: Any, content: Any) -> bool:
    return container.size == len(content) and identical(container.flat, content)


def _refill_objects(container: Any, content: Any) -> None:
    for position, value in enumerate(content):
        container.flat[position] = value


def _set_bits(container: Any, content: Any) -> None:
    container.bit_generator.state = content


DICT, ORDERED = dict_kind(dict), dict_kind(OrderedDict)
LIST = Kind(
    list.copy, lambda h, c: list.__len__(h) == len(c) and identical(list.__iter__(h), c),
    _refill_list,
)  # fmt: skip
SET = Kind(
    lambda container: list(set.__iter__(container)),
    lambda h, c: set(map(id, set.__iter__(h))) == set(map(id, c)),
    _refill_set,
)
DEQUE = Kind(
    lambda container: list(deque.__iter__(container)),
    lambda h, c: deque.__len__(h) == len(c) and identical(deque.__iter__(h), c),
    _refill_deque,
)
BYTES = Kind(bytes, lambda h, c: bytes(h) == c, _refill_bytes)
ARRAY = Kind(array.array.tobytes, lambda h, c: h.tobytes() == c, _refill_array)
NUMBERS = Kind(np.ndarray.copy, _same_numbers, np.copyto)
OBJECTS = Kind(lambda container: list(container.flat), _same_objects, _refill_objects)
STREAM = Kind(
    lambda container: (container.getvalue(), container.tell()),
    lambda h, c: (h.getvalue(), h.tell()) == c,
    _refill_stream,
)
RANDOM = Kind(random.Random.getstate, lambda h, c: h.getstate() == c, random.Random.setstate)
TORCH_RANDOM = Kind(
    torch.Generator.get_state,
    lambda h, c: torch.equal(h.get_state(), c),
    lambda container, state: container.set_state(state) and None,
)
NUMPY_RANDOM = Kind(
    lambda container: container.bit_generator.state,
    lambda h, c: str(h.bit_generator.state) == str(c),
    _set_bits,
)
NUMPY_OLD_RANDOM = Kind(
    np.random.RandomState.get_state,
    lambda h, c: _plain_state(h.get_state()) == _plain_state(c),
    np.random.RandomState.set_state,
)


def _plain_state(state: Any) -> Any:
    return state[1].tobytes(), state[2:]


def _sample(container: Any) -> bytes:
    if isinstance(container, np.ndarray):
        return container.flat[:: max(container.size // SAMPLED, 1)].tobytes()
    view = memoryview(container).cast("B")
    return bytes(view[:: max(len(view) // SAMPLED, 1)])


# Too large to be copied: a change shows where it meets a sample, and stays.
LARGE = Kind(_sample, lambda h, c: _sample(h) == c)


def _advance(container: Any) -> Any:
    """Return the position of an iterator, as its copies would be made from it."""
    if isinstance(container, GeneratorType):
        frame = container.gi_frame
        return None if frame is None else (frame.f_lasti, *map(id, frame.f_locals.values()))
    return container.__reduce__()


def _same_position(container: Any, content: Any) -> bool:
    return _same_progress(_advance(container), content)


def _same_progress(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if isinstance(first, (tuple, list)) and type(first) is type(second):
        return len(first) == len(second) and all(map(_same_progress, first, second))
    return isinstance(first, (int, str)) and first == second


ITERATOR = Kind(_advance, _same_position)


def slots(kind: type) -> list[MemberDescriptorType]:
    """Return the attributes that a class has in slots (`__slots__`)."""
    attributes = (value for base in kind.__mro__[:-1] for value in vars(base).values())
    members = [attribute for attribute in attributes if isinstance(attribute, MemberDescriptorType)]
    return [member for member in members if member.__name__ != "__dict__"]


def slots_kind(members: list[MemberDescriptorType]) -> Kind:
    """Return the kind of objects with these slots."""

    def note(container: Any) -> list[Any]:
        return [_slot(member, container) for member in members]

    def refill(container: Any, content: Any) -> None:
        for member, value in zip(members, content, strict=True):
            if value is not _UNSET:
                member.__set__(container, value)
            elif _slot(member, container) is not _UNSET:
                member.__delete__(container)

    return Kind(note, lambda container, content: identical(note(container), content), refill)


def _slot(member: MemberDescriptorType, container: Any) -> Any:
    try:
        return member.__get__(container)
    except AttributeError:
        return _UNSET


# By base class, the first that fits; each with whether its content may be mutable as well.
KINDS: tuple[tuple[type, Kind, bool], ...] = (
    (OrderedDict, ORDERED, True),
    (dict, DICT, True),
    (list, LIST, True),
    (set, SET, True),
    (deque, DEQUE, True),
    (io.BytesIO, STREAM, False),
    (io.StringIO, STREAM, False),
    (random.Random, RANDOM, False),
    (torch.Generator, TORCH_RANDOM, False),
    (np.random.Generator, NUMPY_RANDOM, False),
    (np.random.RandomState, NUMPY_OLD_RANDOM, False),
)
ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter(range(0))), enumerate, itertools.count, GeneratorType,
)  # fmt: skip
