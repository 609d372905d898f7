"""Size: parameters, buffers and bytes, each tensor once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchgauge.analyze.onnx.graph_size import graph_size
from torchgauge.errors import InputError
from torchgauge.records.work.size import DtypeSize, Size
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.tensors import nbytes, unique
from torchgauge.targets.modules import check_model
from torchgauge.targets.target import Target

DTYPE_PREFIX = "torch."


def size_of(target: Target) -> Size | None:
    """Return the size of a target: of an ONNX file's graph, or of its module; else None."""
    if target.graph is not None:
        return graph_size(target.graph)
    return None if module_of(target.model) is None else measure(target.model, target.files)


def measure(model: Any, files: tuple[Path, ...] = ()) -> Size:
    """Count a module's tensors without running it; on the meta device too.

    Of a module's bound method the module is counted. `files` are what the weights were read from.
    Tensors that only the state dict shows (packed weights of quantised layers) count as parameters
    that are not trainable. Raises InputError `not-a-module`, and as `modules.check_model`.
    """
    module = _module(model)
    lazy = tuple(
        name
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
        if is_lazy(tensor)
    )
    counted: set[object] = set()
    parameters = unique(module.parameters(), counted)
    buffers = unique(module.buffers(), counted)
    stored = unique(_stored(module)) if not lazy else []
    # Scales and zero points, which quantised layers store as scalars, are no weights.
    packed = [tensor for tensor in unique(stored, counted) if tensor.dim()]
    by_dtype: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for tensor in (*parameters, *packed, *buffers):
        entry = by_dtype[str(tensor.dtype).removeprefix(DTYPE_PREFIX)]
        entry[0] += tensor.numel()
        entry[1] += nbytes(tensor)
    disk_bytes, disk_source = _disk(files, stored, initialized=not lazy)
    return Size(
        parameters=sum(tensor.numel() for tensor in (*parameters, *packed)),
        trainable=sum(tensor.numel() for tensor in parameters if tensor.requires_grad),
        buffers=sum(tensor.numel() for tensor in buffers),
        parameter_bytes=sum(nbytes(tensor) for tensor in (*parameters, *packed)),
        buffer_bytes=sum(nbytes(tensor) for tensor in buffers),
        by_dtype={name: DtypeSize(elements=e, bytes=b) for name, (e, b) in by_dtype.items()},
        disk_bytes=disk_bytes,
        disk_source=disk_source,
        uninitialized=lazy,
    )


def _module(model: Any) -> nn.Module:
    check_model(model)
    module = module_of(model)
    if module is None:
        raise InputError(
            "A plain callable has no parameters that can be counted.",
            id="not-a-module",
            cause=f"It is a {type(model).__name__}, and the parameters that it uses are not known.",
            remedy="Give the torch.nn.Module itself, or its bound method.",
        )
    return module


def _stored(model: nn.Module) -> Iterator[torch.Tensor]:
    def tensors(value: Any) -> Iterator[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            for item in value:
                yield from tensors(item)

    # The tensors themselves, since one without a storage is known by its own identity alone.
    for value in model.state_dict(keep_vars=True).values():
        yield from tensors(value)


def _disk(
    files: tuple[Path, ...], stored: list[torch.Tensor], *, initialized: bool
) -> tuple[int | None, str]:
    if files:
        return sum(file.stat().st_size for file in files), ", ".join(file.name for file in files)
    if not initialized:
        return None, ""
    return sum(map(nbytes, stored)), "its state dict's tensors (not written)"
