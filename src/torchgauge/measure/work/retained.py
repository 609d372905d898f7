"""The bytes that a forward pass saves for its backward pass, counted as they are saved."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import graph

from torchgauge.measure.memory.live_tensors import saved_for_backward
from torchgauge.measure.work import internals
from torchgauge.signals import restoring
from torchgauge.targets.inputs.tensors import strided


@restoring
def retained(excluded: set[Any]) -> Iterator[Callable[[list[torch.Tensor]], int]]:
    """Yield a function of the outputs: the bytes saved so far, without `excluded` storages.

    Hooks tell what is saved. torch.func refuses to work under hooks: they are set aside for as long
    as it transforms, and what was saved meanwhile is found in the graph of the outputs.
    """
    from torch.multiprocessing.reductions import StorageWeakRef

    saved: dict[Any, tuple[Any, int]] = {}
    transformed: list[range] = []
    disabled = graph.disable_saved_tensors_hooks

    def note(tensor: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse: no single storage
            storage, key = tensor.untyped_storage(), internals.storage_key(tensor)
            if key not in excluded:
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                saved[key] = (reference, storage.nbytes())
        return tensor

    @contextlib.contextmanager
    def disabled_without_ours(error_message: str) -> Iterator[None]:
        if internals.innermost_hooks(False) != (
            note,
            _unchanged,
        ):  # those of the model: it fails anyway
            with disabled(error_message):
                yield
            return
        hooks.__exit__()
        first = internals.sequence_number()
        try:
            with disabled(error_message):
                yield
        finally:
            transformed.append(range(first, internals.sequence_number()))
            hooks.__enter__()

    def saved_bytes(outputs: list[torch.Tensor]) -> int:
        with internals.unseen():
            for node, tensor in saved_for_backward(outputs if transformed else []):
                number = internals.node_number(node)
                if any(number in numbers for numbers in transformed):
                    for part in strided(tensor):
                        note(part)
        return sum(size for reference, size in saved.values() if not reference.expired())

    hooks = graph.saved_tensors_hooks(note, _unchanged)
    graph.disable_saved_tensors_hooks = disabled_without_ours
    try:
        with hooks:
            yield saved_bytes
    finally:
        graph.disable_saved_tensors_hooks = disabled


def _unchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
