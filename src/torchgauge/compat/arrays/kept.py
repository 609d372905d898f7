"""The model leaves as it came: attributes, containers and arrays are put back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from torchgauge.compat.arrays.members import Array, objects, slots
from torchgauge.signals import restoring
from torchgauge.turn import turn


@restoring
def kept(*roots: Any) -> Iterator[None]:
    """Run a block in evaluation mode, and put back what it changed in these objects.

    A `training` flag is False meanwhile, wherever an object has one. Functions' closures and
    globals stay as they are. Other threads that measure wait meanwhile.
    """
    with turn():
        yield from _kept(roots)


def _kept(roots: tuple[Any, ...]) -> Iterator[None]:
    held = [one for root in roots for one in objects(root)]
    places = [(one, _held(one)) for one in held]
    arrays = [(one, one.copy()) for one in held if isinstance(one, np.ndarray)]
    try:
        for one in held:
            if isinstance(_attributes(one).get("training"), bool):
                _attributes(one)["training"] = False
        yield
    finally:
        for one, before in places:
            _put_back(one, before)
        for array, copy in arrays:
            restore(array, copy)


def restore(array: Array, before: Array) -> None:
    """Write the values back where they differ; another array's view may be read-only."""
    if array.flags.writeable and array.tobytes() != before.tobytes():
        array[...] = before


class _Place(NamedTuple):
    """What one object or container held."""

    members: Any
    attributes: dict[str, Any]
    slotted: dict[str, Any]


def _held(one: Any) -> _Place:
    members = dict(one) if isinstance(one, dict) else list(one) if isinstance(one, list) else None
    slotted = {name: getattr(one, name) for name in slots(one)}
    return _Place(members, dict(_attributes(one)), slotted)


def _put_back(one: Any, before: _Place) -> None:
    if isinstance(one, dict):
        one.clear()
        one.update(before.members)
    elif isinstance(one, list):
        one[:] = before.members
    own = _attributes(one)
    own.clear()
    own.update(before.attributes)
    for name, value in before.slotted.items():
        object.__setattr__(one, name, value)


def _attributes(one: Any) -> dict[str, Any]:
    found = getattr(one, "__dict__", None)
    return found if isinstance(found, dict) else {}
