"""Which storages a value holds: where they are and how big, each once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from torchgauge.targets.inputs.tensors import strided


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
