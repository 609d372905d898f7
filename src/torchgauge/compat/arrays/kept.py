"""Restores a model's attributes, containers and arrays after a block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from torchgauge.measure.arrays.members import Array, objects, slots
from torchgauge.signals import restoring
from torchgauge.turn import turn


@restoring
def preserved(*roots: Any) -> Iterator[None]:
    """Run a block in evaluation mode, and restore these objects afterwards.

    A `training` flag is False meanwhile, wherever an object has one. Functions' closures and
    globals stay as they are. Other threads that measure wait meanwhile.
    """
    with turn():
        yield from _preserved(roots)


def _preserved(roots: tuple[Any, ...]) -> Iterator[None]:
    owners = [owner for root in roots for owner in objects(root)]
    saved = [(owner, _content(owner)) for owner in owners]
    arrays = [(owner, owner.copy()) for owner in owners if isinstance(owner, np.ndarray)]
    try:
        for owner in owners:
            if isinstance(_attributes(owner).get("training"), bool):
                _attributes(owner)["training"] = False
        yield
    finally:
        for owner, before in saved:
            _put_back(owner, before)
        for array, copy in arrays:
            restore(array, copy)


def restore(array: Array, before: Array) -> None:
    """Write the values back where they differ; another array's view may be read-only."""
    if array.flags.writeable and array.tobytes() != before.tobytes():
        array[...] = before


class _Content(NamedTuple):
    """The content of one object or container."""

    members: Any
    attributes: dict[str, Any]
    slotted: dict[str, Any]


def _content(owner: Any) -> _Content:
    members = None
    if isinstance(owner, dict | list):
        members = dict(owner) if isinstance(owner, dict) else list(owner)
    slotted = {name: getattr(owner, name) for name in slots(owner)}
    return _Content(members, dict(_attributes(owner)), slotted)


def _put_back(owner: Any, before: _Content) -> None:
    if isinstance(owner, dict):
        owner.clear()
        owner.update(before.members)
    elif isinstance(owner, list):
        owner[:] = before.members
    own = _attributes(owner)
    own.clear()
    own.update(before.attributes)
    for name, value in before.slotted.items():
        object.__setattr__(owner, name, value)


def _attributes(owner: Any) -> dict[str, Any]:
    attributes = getattr(owner, "__dict__", None)
    return attributes if isinstance(attributes, dict) else {}
