"""Columns that grow chunk by chunk: numbers, and codes of values that are stored once."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from itertools import chain
from operator import pos
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchgauge.records.trace.events import ABSENT, Coded, Codes

H = TypeVar("H", bound=Hashable)
_INT32 = np.iinfo(np.int32)
# Lists of tensor shapes nest three deep; later code walks them recursively.
_DEEPEST = 8


class Column(Protocol):
    """A column of a table in the making."""

    def add(self, values: Iterable[Any], count: int) -> object:
        """Append `count` values."""

    def finish(self) -> Any:
        """Return all of them; the column is empty afterwards."""


class Parts:
    """An array that grows by parts.

    It doubles in place of keeping the parts: many small ones leave holes in memory that nothing
    else fits into, and what is not yet written to takes none.
    """

    def __init__(self, dtype: type[np.generic]) -> None:
        self._dtype = dtype
        self._array = np.empty(0, dtype)
        self._count = 0

    def append(self, part: NDArray[Any]) -> None:
        """Append an array of any integer or float type."""
        count = self._count + len(part)
        kind = self._kind(part)
        if count > len(self._array) or kind != self._array.dtype:
            larger = np.empty(max(count, 2 * len(self._array)), kind)
            larger[: self._count] = self._array[: self._count]
            self._array = larger
        self._array[self._count : count] = part
        self._count = count

    def _kind(self, part: NDArray[Any]) -> np.dtype[Any]:
        """Return the type that holds both the present values and the part."""
        del part
        kind: np.dtype[Any] = self._array.dtype
        return kind

    def __len__(self) -> int:
        return self._count

    def view(self) -> NDArray[Any]:
        """Return the values so far."""
        return self._array[: self._count]

    def finish(self) -> NDArray[Any]:
        """Return all values; the column is empty afterwards."""
        values = self.view()
        self._array, self._count = np.empty(0, self._dtype), 0
        return values


class Narrow(Parts):
    """Integers that grow by parts, in four bytes each where all of them fit."""

    def __init__(self, dtype: type[np.generic]) -> None:
        super().__init__(dtype)
        if dtype == np.int64:
            self._array = np.empty(0, np.int32)

    def _kind(self, part: NDArray[Any]) -> np.dtype[Any]:
        kind = super()._kind(part)
        if kind != np.int32 or not len(part):
            return kind
        fits = part.min() >= _INT32.min and part.max() <= _INT32.max
        return kind if fits else np.dtype(np.int64)


class Numbers(Narrow):
    """A column of plain numbers."""

    def add(self, values: Iterable[Any], count: int) -> None:
        """Append `count` values."""
        self.append(np.fromiter(values, self._dtype, count))


class Fractions(Numbers):
    """A column of floats; a text among them is unknown."""

    def __init__(self) -> None:
        super().__init__(np.float64)

    def add(self, values: Iterable[Any], count: int) -> None:
        """Append `count` values."""
        numbers = list(values)
        try:
            super().add(map(pos, numbers), count)
        except TypeError:
            super().add((math.nan if isinstance(v, str) else v for v in numbers), count)


class Triples(Numbers):
    """A column of three integers each."""

    def __init__(self) -> None:
        super().__init__(np.int64)

    def add(self, values: Iterable[Any], count: int) -> None:
        """Append `count` values."""
        super().add(chain.from_iterable(values), 3 * count)

    def finish(self) -> NDArray[Any]:
        """Return an array of n × 3."""
        return super().finish().reshape(-1, 3)


class Interned(dict[H, int]):
    """Numbers given to values in the order in which they first come; `absent` has −1."""

    def __init__(self, absent: H) -> None:
        super().__init__({absent: ABSENT})
        self._values: list[H] = []

    def __missing__(self, value: H) -> int:
        code = self[value] = len(self._values)
        self._values.append(value)
        return code

    def values_by_code(self, start: int = 0) -> tuple[H, ...]:
        """Return the values from the code `start` on, without the absent one."""
        return tuple(self._values[start:])


class Labels:
    """A column of values that are kept once; at the end `meaning` says what each stands for."""

    def __init__(self, absent: Any = None, meaning: Callable[[Any], Any] | None = None) -> None:
        self._interned: Interned[Any] = Interned(absent)
        self._codes = Parts(np.int32)
        self._meaning = meaning

    def code(self, values: Iterable[Any], count: int) -> Codes:
        """Return the codes of `count` values without appending them."""
        return np.fromiter(map(self._interned.__getitem__, values), np.int32, count)

    def add(self, values: Iterable[Any], count: int) -> Codes:
        """Append `count` values, and return their codes."""
        codes = self.code(values, count)
        self._codes.append(codes)
        return codes

    def values(self, start: int = 0) -> tuple[Any, ...]:
        """Return the values by their codes, from the code `start` on, before their meaning."""
        return self._interned.values_by_code(start)

    def finish(self) -> Coded[Any]:
        """Return codes and values; those of one meaning share a code, None has none."""
        if self._meaning is None:
            return Coded(self._codes.finish(), self.values())
        distinct: Interned[Any] = Interned(None)
        codes = [distinct[self._meaning(value)] for value in self.values()]
        renumber = np.array([*codes, ABSENT], dtype=np.int32)  # the last code is for absent values
        return Coded(renumber[self._codes.finish()], distinct.values_by_code())


class Documents:
    """Columns of JSON lists, identified by their common text and decoded once to nested tuples."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._texts = Labels()

    def add(self, values: Iterable[tuple[msgspec.Raw, ...]], count: int) -> None:
        """Append one text per column, `count` times; each has to be JSON."""
        self._texts.add(map(b",".join, values), count)

    def finish(self) -> dict[str, Coded[Any]]:
        """Return the columns by name; values other than lists are left out."""
        texts = self._texts.finish()
        decoded = [self._decoded(text) for text in texts.values]
        columns = {}
        for index, name in enumerate(self._names):
            distinct: Interned[Any] = Interned(None)
            codes = [distinct[_tuples(values[index])] for values in decoded]
            renumber = np.array(codes, dtype=np.int32)
            columns[name] = Coded(renumber[texts.codes], distinct.values_by_code())
        return columns

    def _decoded(self, text: bytes) -> list[Any]:
        try:
            values: list[Any] = msgspec.json.decode(b"[%b]" % _readable(text))
        except (ValueError, RecursionError):  # such as a number that no computer takes
            return [None] * len(self._names)
        return values


def _readable(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode()


def _tuples(value: Any) -> tuple[Any, ...] | None:
    """Return a list as nested tuples; None for any other value and for a list nested too deep."""
    try:
        return _frozen(value, _DEEPEST) if isinstance(value, list) else None
    except RecursionError:
        return None


def _frozen(value: Any, deeper: int) -> Any:
    if isinstance(value, list):
        if not deeper:
            raise RecursionError
        return tuple(_frozen(item, deeper - 1) for item in value)
    # Python takes true for 1, and cannot keep a mapping in a set.
    return str(value) if isinstance(value, bool | dict) else value
