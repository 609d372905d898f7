"""Which storages a value holds: where they are and how big, each once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from torchgauge.targets.inputs.tensors import strided

_CLOSED = (type, torch.nn.Module)


def tensors_in(
    value: Any, *, objects: bool = True, repeated: bool = False
) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value: itself, or in containers and attributes of `objects` in it.

    Each tensor comes once, or as often as it is held where `repeated`. Modules and classes are not
    entered.
    """
    visited: set[int] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, torch.Tensor):
            if repeated or id(item) not in visited:
                yield item
            visited.add(id(item))
            continue
        if id(item) in visited:
            continue
        visited.add(id(item))
        if isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            pending.extend(item)
        elif objects and not isinstance(item, _CLOSED):
            pending.extend(getattr(item, "__dict__", {}).values())
            pending.extend(_slotted(item))


def _slotted(item: Any) -> Iterator[Any]:
    """Yield what an object holds without a dictionary, as `@dataclass(slots=True)` makes it."""
    for kind in type(item).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(AttributeError):  # not set, or renamed as private
                yield getattr(item, name)


def storages(tensors: Iterable[torch.Tensor], device: torch.device) -> dict[int, int]:
    """Return address → bytes of the storages that back `tensors` on `device`, each once."""
    sizes = {}
    for tensor in tensors:
        for part in strided(tensor):
            storage = part.untyped_storage()
            if storage.nbytes() and _on(part.device, device):
                sizes[storage.data_ptr()] = storage.nbytes()
    return sizes


class TensorStorage(NamedTuple):
    """A storage and the first of the tensors in it, by name."""

    address: int
    size: int
    name: str
    shape: tuple[int, ...]
    dtype: str


def named_storages(
    tensors: Iterable[tuple[str, torch.Tensor]], device: torch.device
) -> list[TensorStorage]:
    """Return the storages that back `tensors` on `device`, each once, in bytes."""
    by_address: dict[int, TensorStorage] = {}
    for name, tensor in tensors:
        for address, size in storages((tensor,), device).items():
            # A nested tensor has no shape, but a number of parts.
            sides = [tensor.size(0)] if tensor.is_nested else list(tensor.shape)
            shape, dtype = tuple(map(int, sides)), str(tensor.dtype).removeprefix("torch.")
            by_address.setdefault(address, TensorStorage(address, size, name, shape, dtype))
    return list(by_address.values())


def _on(device: torch.device, target: torch.device) -> bool:
    same_index = target.index is None or device.index in (None, target.index)
    return device.type == target.type and same_index
