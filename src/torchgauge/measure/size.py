"""Size: parameters, buffers and bytes, each tensor once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torchgauge.model.size import DtypeSize, Size

LAZY = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
DTYPE_PREFIX = "torch."


def measure(model: object, files: tuple[Path, ...] = ()) -> Size:
    """Count a model's tensors without running it; models on the meta device too.

    A plain callable has no parameters of its own. `files` are what the weights were read from.
    Tensors that only the state dict shows (packed weights of quantised layers) count as
    parameters that are not trainable.
    """
    if not isinstance(model, nn.Module):
        return Size(
            parameters=0, trainable=0, buffers=0, parameter_bytes=0, buffer_bytes=0, by_dtype={}
        )
    lazy = tuple(
        name
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
        if isinstance(tensor, LAZY)
    )
    seen: set[object] = set()
    parameters = _once(model.parameters(), seen)
    buffers = _once(model.buffers(), seen)
    stored = list(_stored(model)) if not lazy else []
    # Scales and zero points, which quantised layers store as scalars, are no weights.
    packed = [tensor for tensor in _once(iter(stored), seen) if tensor.dim()]
    by_dtype: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for tensor in (*parameters, *packed, *buffers):
        entry = by_dtype[str(tensor.dtype).removeprefix(DTYPE_PREFIX)]
        entry[0] += tensor.numel()
        entry[1] += tensor_bytes(tensor)
    disk_bytes, disk_source = _disk(files, stored, known=not lazy)
    return Size(
        parameters=sum(tensor.numel() for tensor in (*parameters, *packed)),
        trainable=sum(tensor.numel() for tensor in parameters if tensor.requires_grad),
        buffers=sum(tensor.numel() for tensor in buffers),
        parameter_bytes=sum(tensor_bytes(tensor) for tensor in (*parameters, *packed)),
        buffer_bytes=sum(tensor_bytes(tensor) for tensor in buffers),
        by_dtype={name: DtypeSize(elements=e, bytes=b) for name, (e, b) in by_dtype.items()},
        disk_bytes=disk_bytes,
        disk_source=disk_source,
        uninitialized=lazy,
    )


def _once(tensors: Iterator[torch.Tensor], seen: set[object]) -> list[torch.Tensor]:
    fresh = []
    for tensor in tensors:
        if isinstance(tensor, LAZY):
            continue
        key = _identity(tensor)
        if key not in seen:
            seen.add(key)
            fresh.append(tensor)
    return fresh


def _identity(tensor: torch.Tensor) -> object:
    """Return what two names of the same numbers share: their place in one storage."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        return tuple(_identity(getattr(tensor, name)) for name in names)
    if tensor.layout is not torch.strided:
        return id(tensor)
    storage = tensor.untyped_storage()._cdata  # noqa: SLF001 - data_ptr is 0 on the meta device
    return storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements; of its inner tensors for sparse and subclasses."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        return sum(tensor_bytes(getattr(tensor, name)) for name in names)
    if tensor.layout is torch.sparse_coo:
        return tensor_bytes(tensor._indices()) + tensor_bytes(tensor._values())  # noqa: SLF001
    if tensor.layout is torch.sparse_csr:
        inner = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
        return sum(tensor_bytes(part) for part in inner)
    return tensor.numel() * tensor.element_size()


def _stored(model: nn.Module) -> Iterator[torch.Tensor]:
    def tensors(value: Any) -> Iterator[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            for item in value:
                yield from tensors(item)

    for value in model.state_dict().values():
        yield from tensors(value)


def _disk(
    files: tuple[Path, ...], stored: list[torch.Tensor], *, known: bool
) -> tuple[int | None, str]:
    if files:
        return sum(file.stat().st_size for file in files), ", ".join(file.name for file in files)
    if not known:
        return None, ""
    unique = {_identity(tensor): tensor for tensor in stored}
    return sum(map(tensor_bytes, unique.values())), "its state dict's tensors (not written)"
