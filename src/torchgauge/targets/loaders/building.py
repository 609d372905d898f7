"""Builds a model on the requested device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchgauge.errors import InputError


def build(make: Callable[[], Any], device: str) -> Any:
    """Return what `make` makes, its tensors created on `device`.

    Some constructors read the values of tensors they have just made, which the
    meta device does not have: these models are made on the CPU and moved afterwards.
    """
    if torch.device(device).type != "meta":
        with torch.device(device):
            return make()
    try:
        with torch.device(device):
            return make()
    except (RuntimeError, InputError) as error:
        if "meta" not in f"{error} {error.__cause__}".lower():
            raise
    model = make()
    return model.to(device) if isinstance(model, torch.nn.Module) else model
