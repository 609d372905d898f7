"""Layers as NVTX ranges, so that Nsight Systems shows the same layers as the tree."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import nn

from torchgauge.errors import MeasurementError
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.scope import observed
from torchgauge.measure.step import prepared
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Training

STEPS = 10


class Markers(Protocol):
    """What torch.cuda.nvtx offers."""

    def range_push(self, msg: str) -> object:
        """Begin a range on this thread, inside of those that have begun."""

    def range_pop(self) -> object:
        """End the innermost."""


@contextlib.contextmanager
def nvtx(model: Callable[..., Any], markers: Markers | None = None) -> Iterator[None]:
    """Mark every call of the model's layers by an NVTX range until the block ends.

    A range has the layer's qualified name and class. What autograd runs in the backward pass has
    none: add `torch.autograd.profiler.emit_nvtx()` for it. Raises MeasurementError
    `nvtx-unavailable`.
    """
    if markers is None:
        check_available()
        markers = torch.cuda.nvtx
    module = module_of(model)
    with observed(_Ranges(model, markers), () if module is None else module.modules()):
        yield


def check_available() -> None:
    """Raise MeasurementError `nvtx-unavailable` where this torch has no NVTX."""
    try:
        torch.cuda.nvtx.mark("torchgauge")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise MeasurementError(
            "NVTX ranges cannot be made here.",
            id="nvtx-unavailable",
            cause=str(error),
            remedy="Use a torch with CUDA, under Nsight Systems: "
            "nsys profile torchgauge profile TARGET --nvtx",
        ) from error


def run(placement: Placement, *, train: Training | None = None) -> None:
    """Run some steps with layers marked, in a range of their own each; nothing is measured."""
    markers: Markers = torch.cuda.nvtx
    with prepared(placement, train) as step, nvtx(placement.model):
        for number in range(STEPS):
            markers.range_push(f"step {number}")
            try:
                step()
            finally:
                markers.range_pop()


class _Ranges:
    """Pushes a range when a call begins, and pops it when that ends, however it ends."""

    def __init__(self, model: Callable[..., Any], markers: Markers) -> None:
        self._modules = Modules(model)
        self._markers = markers
        self._running = threading.local()

    def enter(self, module: nn.Module, _arguments: Any) -> None:
        paths = vars(self._running).setdefault("paths", [""])
        named = self._modules.table[self._modules.number(module)]
        path = named.path_in(paths[-1])
        paths.append(path)
        text = f"{path} ({named.kind})" if path else named.kind
        self._markers.range_push(text.encode("ascii", "backslashreplace").decode())

    def leave(self, _token: None, _outputs: Any) -> None:
        self._markers.range_pop()
        self._running.paths.pop()
