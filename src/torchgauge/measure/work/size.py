"""Size: parameters, buffers and bytes, each tensor once."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from torch import nn

from torchgauge.analyze.onnx.graph_size import graph_size
from torchgauge.errors import InputError
from torchgauge.records.work.size import DtypeSize, Size
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.holdings import holdings, unique
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs import tensors
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
    Weights that are no parameters (packed ones of quantised layers) count as parameters that are
    not trainable, tensors in attributes as buffers. Raises InputError `not-a-module`, and as
    `modules.check_model`.
    """
    module = _module(model)
    held = holdings(model)
    unique_tensors = unique(held)
    lazy = tuple(tensor.name for tensor in held if tensor.is_lazy)
    parameters = [tensor for tensor in unique_tensors if tensor.role == "parameter"]
    buffers = [tensor for tensor in unique_tensors if tensor.role == "buffer"]
    by_dtype: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for tensor in (*parameters, *buffers):
        if not tensor.is_lazy:
            entry = by_dtype[str(tensor.dtype).removeprefix(DTYPE_PREFIX)]
            entry[0] += tensor.elements
            entry[1] += tensor.bytes
    in_cpp = (
        tensor.bytes
        for tensor in parameters
        if not tensor.registered and not isinstance(tensor.tensor, nn.Parameter)
    )
    disk_bytes, disk_source = _disk(files, module, sum(in_cpp)) if files or not lazy else (None, "")
    return Size(
        parameters=sum(tensor.elements for tensor in parameters),
        trainable=sum(tensor.elements for tensor in parameters if tensor.trainable),
        buffers=sum(tensor.elements for tensor in buffers),
        parameter_bytes=sum(tensor.bytes for tensor in parameters),
        buffer_bytes=sum(tensor.bytes for tensor in buffers),
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


def _disk(files: tuple[Path, ...], model: nn.Module, in_cpp: int) -> tuple[int | None, str]:
    if files:
        return sum(file.stat().st_size for file in files), ", ".join(file.name for file in files)
    # The tensors themselves, since one without a storage is known by its own identity alone.
    stored = tensors.unique(tensors_in(model.state_dict(keep_vars=True)))
    stored_bytes = sum(map(tensors.nbytes, stored))
    if stored_bytes < in_cpp:  # some layers in C++ write themselves to files alone
        return None, ""
    return stored_bytes, "its state dict's tensors (not written)"
