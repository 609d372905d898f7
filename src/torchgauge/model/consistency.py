"""Whether the fields of a record fit together, checked once: where it is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Fault(NamedTuple):
    """What does not fit, and where: a path as msgspec names it."""

    path: str
    what: str


def faults(record: object) -> Iterator[Fault]:
    """Yield what of a record does not fit together, in the order of its fields."""
    del record
    yield from ()
