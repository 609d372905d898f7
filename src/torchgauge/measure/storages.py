"""Which storages a value holds: where they are and how big, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}

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
        for part in _plain(tensor):
            storage = part.untyped_storage()
            if storage.nbytes() and _on(part.device, device):
                found[storage.data_ptr()] = storage.nbytes()
    return found


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the strided tensors that a tensor is made of."""
    if is_lazy(tensor):
        return
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _plain(getattr(tensor, name))
    elif tensor.layout in _SPARSE:
        plain = tensor.detach()
        for name in _SPARSE[tensor.layout]:
            yield getattr(plain, name)()
    elif tensor.layout is torch.strided:
        yield tensor


def _on(device: torch.device, wanted: torch.device) -> bool:
    same_index = wanted.index is None or device.index in (None, wanted.index)
    return device.type == wanted.type and same_index
