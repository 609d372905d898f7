"""Which storages a value holds: where they are and how big, each once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from torchgauge.target.tensors import strided

_CLOSED = (type, torch.nn.Module)


def tensors_in(
    value: Any, *, objects: bool = True, repeated: bool = False
) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value: itself, or in containers and attributes of `objects` in it.

    Each tensor comes once, or as often as it is held where `repeated`. Modules and classes are not
    entered.
    """
    seen: set[int] = set()
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, torch.Tensor):
            if repeated or id(item) not in seen:
                yield item
            seen.add(id(item))
            continue
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Mapping):
            left.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            left.extend(item)
        elif objects and not isinstance(item, _CLOSED):
            left.extend(getattr(item, "__dict__", {}).values())
            left.extend(_slotted(item))


def _slotted(item: Any) -> Iterator[Any]:
    """Yield what an object holds without a dictionary, as `@dataclass(slots=True)` makes it."""
    for kind in type(item).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(AttributeError):  # not set, or renamed as private
                yield getattr(item, name)


def storages(tensors: Iterable[torch.Tensor], device: torch.device) -> dict[int, int]:
    """Return address → bytes of the storages that back `tensors` on `device`, each once."""
    found = {}
    for tensor in tensors:
        for part in strided(tensor):
            storage = part.untyped_storage()
            if storage.nbytes() and _on(part.device, device):
                found[storage.data_ptr()] = storage.nbytes()
    return found


class NamedStorage(NamedTuple):
    """A storage and the first of the tensors in it, by name."""

    address: int
    size: int
    name: str
    shape: tuple[int, ...]
    dtype: str


def named_storages(
    tensors: Iterable[tuple[str, torch.Tensor]], device: torch.device
) -> list[NamedStorage]:
    """Return the storages that back `tensors` on `device`, each once, in bytes."""
    found: dict[int, NamedStorage] = {}
    for name, tensor in tensors:
        for address, size in storages((tensor,), device).items():
            # A nested tensor has no shape, but a number of parts.
            sides = [tensor.size(0)] if tensor.is_nested else list(tensor.shape)
            shape, dtype = tuple(map(int, sides)), str(tensor.dtype).removeprefix("torch.")
            found.setdefault(address, NamedStorage(address, size, name, shape, dtype))
    return list(found.values())


def _on(device: torch.device, wanted: torch.device) -> bool:
    same_index = wanted.index is None or device.index in (None, wanted.index)
    return device.type == wanted.type and same_index
