"""Restores a model's attributes, containers and arrays after a block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from torchgauge.compat.arrays.members import Array, objects, slots
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
    held = [holder for root in roots for holder in objects(root)]
    saved = [(holder, _content(holder)) for holder in held]
    arrays = [(holder, holder.copy()) for holder in held if isinstance(holder, np.ndarray)]
    try:
        for holder in held:
            if isinstance(_attributes(holder).get("training"), bool):
                _attributes(holder)["training"] = False
        yield
    finally:
        for holder, before in saved:
            _put_back(holder, before)
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


def _content(holder: Any) -> _Content:
    members = None
    if isinstance(holder, dict | list):
        members = dict(holder) if isinstance(holder, dict) else list(holder)
    slotted = {name: getattr(holder, name) for name in slots(holder)}
    return _Content(members, dict(_attributes(holder)), slotted)


def _put_back(holder: Any, before: _Content) -> None:
    if isinstance(holder, dict):
        holder.clear()
        holder.update(before.members)
    elif isinstance(holder, list):
        holder[:] = before.members
    own = _attributes(holder)
    own.clear()
    own.update(before.attributes)
    for name, value in before.slotted.items():
        object.__setattr__(holder, name, value)


def _attributes(holder: Any) -> dict[str, Any]:
    attributes = getattr(holder, "__dict__", None)
    return attributes if isinstance(attributes, dict) else {}
