"""Which storages a value holds: where they are and how big, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from torchgauge.target.tensors import strided

_CLOSED = (type, torch.nn.Module)


def tensors_in(value: Any, *, objects: bool = True) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value: itself, or in containers and attributes of `objects` in it.

    Modules and classes are not entered.
    """
    seen: set[int] = set()
    left = [value]
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, Mapping):
            left.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            left.extend(item)
        elif objects and hasattr(item, "__dict__") and not isinstance(item, _CLOSED):
            left.extend(vars(item).values())


def storages(tensors: Iterable[torch.Tensor], device: torch.device) -> dict[int, int]:
    """Return address → bytes of the storages that back `tensors` on `device`, each once."""
    found = {}
    for tensor in tensors:
        for part in strided(tensor):
            storage = part.untyped_storage()
            if storage.nbytes() and _on(part.device, device):
                found[storage.data_ptr()] = storage.nbytes()
    return found


def _on(device: torch.device, wanted: torch.device) -> bool:
    same_index = wanted.index is None or device.index in (None, wanted.index)
    return device.type == wanted.type and same_index
