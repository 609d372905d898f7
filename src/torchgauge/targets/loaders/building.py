"""Builds a model on the requested device."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchgauge.signals import restoring


def build(make: Callable[[], Any], device: str) -> Any:
    """Return what `make` makes, its tensors created on `device`.

    Some constructors read the values of tensors they have just made, which the
    meta device does not have: these models are made on the CPU and moved afterwards.
    """
    if torch.device(device).type != "meta":
        with torch.device(device):
            return make()
    try:
        with _imports_with_values(), torch.device(device):
            return make()
    except Exception:  # noqa: BLE001 - where values are not the reason, it raises again
        model = make()
    return model.to(device) if isinstance(model, torch.nn.Module) else model


@restoring
def _imports_with_values() -> Iterator[None]:
    """Let modules that the block imports make real tensors: they stay after it, for all to use."""
    owner: Any = importlib._bootstrap  # noqa: SLF001 - every import of Python's passes here
    original = owner._load_unlocked  # noqa: SLF001

    def load(spec: Any) -> Any:
        if torch.get_default_device().type != "meta":  # of another thread
            return original(spec)
        with torch.device("cpu"):
            return original(spec)

    owner._load_unlocked = load  # noqa: SLF001
    try:
        yield
    finally:
        owner._load_unlocked = original  # noqa: SLF001
