"""The memory of a tensor: the strided tensors inside it, their identity and their bytes."""

from __future__ import annotations

import array
import ctypes
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from torchgauge import torch_private

_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}

_PLAIN = (torch.Tensor, torch.nn.Parameter)
BUFFERS = (np.ndarray, bytearray, array.array)


def tensor_of(item: Any) -> torch.Tensor | None:
    """Return a tensor that is an object's memory, None where the object has none of its own.

    Of a NumPy array or another buffer it is one to look at, and only while the buffer lives.
    """
    if isinstance(item, torch.Tensor) or not isinstance(item, BUFFERS):
        return item if isinstance(item, torch.Tensor) else None
    values = np.asarray(item) if isinstance(item, np.ndarray) else np.frombuffer(item, np.uint8)
    if values.dtype.hasobject:
        return None  # what its objects hold is theirs
    with warnings.catch_warnings(action="ignore"):  # nothing is written to what is not writable
        try:
            return torch.from_numpy(values)
        except (TypeError, ValueError):  # a type of elements, or strides, that torch lacks
            address = values.__array_interface__["data"][0]
            memory = (ctypes.c_byte * values.nbytes).from_address(address)
            return torch.frombuffer(memory, dtype=torch.uint8) if values.size else None


def strided(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors with a storage that a tensor is made of: itself, or its inner ones.

    Of one that torch.func wraps it is the inner one. A tensor that is not initialised yet, or whose
    layout hides its storage (oneDNN), has none.
    """
    if torch_private.is_of_functorch(tensor):
        yield from strided(torch_private.unwrapped(tensor))
        return
    if type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_nested:
        yield tensor  # nearly every tensor, and asked for each one of a model
        return
    if is_lazy(tensor):
        return
    if torch_private.is_wrapper(tensor):
        for name in tensor.__tensor_flatten__()[0]:  # type: ignore[attr-defined]
            if isinstance(inner := getattr(tensor, name), torch.Tensor):  # not a mesh, for one
                yield from strided(inner)
    elif tensor.layout in _SPARSE:
        plain = tensor.detach()
        for name in _SPARSE[tensor.layout]:
            yield getattr(plain, name)()
    elif tensor.layout is torch.strided:
        yield tensor.detach().values() if tensor.is_nested else tensor


def identity(tensor: torch.Tensor) -> object:
    """Return what two tensors of the same numbers share: their extents in the same storages."""
    return tuple(map(extent, strided(tensor))) or id(tensor)


def extent(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return what tells which memory a tensor shows: is_set_to, which quantized ones lack."""
    storage = tensor.untyped_storage()
    # One memory may have several storages on the host: those of a NumPy array.
    address = storage.data_ptr() if tensor.is_cpu and type(tensor) in _PLAIN else 0
    address = address or storage._cdata  # noqa: SLF001 - data_ptr is 0 on the meta device
    return address, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def version_of(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor was written to; None of one made in inference mode."""
    return None if tensor.is_inference() else tensor._version  # noqa: SLF001 (there is no public way)


def node_of(tensor: torch.Tensor) -> Any:
    """Return the node of autograd that made a tensor, None also where torch refuses to say it."""
    try:
        return tensor.grad_fn
    except RuntimeError:  # of a view that was changed through another
        return None


def nbytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements; those that it repeats (expand) count once."""
    if is_lazy(tensor):
        return 0
    if parts := list(strided(tensor)):
        return sum(min(part.nbytes, part.untyped_storage().nbytes()) for part in parts)
    return tensor.nbytes


def unique(
    tensors: Iterable[torch.Tensor], seen_keys: set[object] | None = None
) -> list[torch.Tensor]:
    """Return each tensor once, without those in `seen_keys` (which grows) and lazy ones."""
    keys = set() if seen_keys is None else seen_keys
    fresh = []
    for tensor in tensors:
        if not is_lazy(tensor) and (key := identity(tensor)) not in keys:
            keys.add(key)
            fresh.append(tensor)
    return fresh
