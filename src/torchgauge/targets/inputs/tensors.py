"""The memory of a tensor: the strided tensors inside it, their identity and their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def strided(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors with a storage that a tensor is made of: itself, or its inner ones.

    Of one that torch.func wraps it is the inner one. A tensor that is not initialised yet, or whose
    layout hides its storage (oneDNN), has none.
    """
    if is_functorch_wrapped_tensor(tensor):
        yield from strided(get_unwrapped(tensor))
        return
    if type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_nested:
        yield tensor  # nearly every tensor, and asked for each one of a model
        return
    if is_lazy(tensor):
        return
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from strided(getattr(tensor, name))
    elif tensor.layout in _SPARSE:
        plain = tensor.detach()
        for name in _SPARSE[tensor.layout]:
            yield getattr(plain, name)()
    elif tensor.layout is torch.strided:
        yield tensor.detach().values() if tensor.is_nested else tensor


def identity(tensor: torch.Tensor) -> object:
    """Return what two tensors of the same numbers share: their extents in the same storages."""
    return tuple(map(extent, strided(tensor))) or id(tensor)


def extent(tensor: torch.Tensor) -> object:
    """Return what tells which memory a tensor shows: is_set_to, which quantized ones lack."""
    storage = tensor.untyped_storage()._cdata  # noqa: SLF001 - data_ptr is 0 on the meta device
    return storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


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
