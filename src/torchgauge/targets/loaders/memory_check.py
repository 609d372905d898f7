"""Refuses a model that cannot fit into memory before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchgauge.device.counters import memory_available
from torchgauge.errors import InputError
from torchgauge.targets import members
from torchgauge.targets.inputs.tensors import nbytes, unique
from torchgauge.targets.target import TargetRequest
from torchgauge.units import size


def check_fits(construct: Callable[[], Any], request: TargetRequest) -> None:
    """Construct the model without memory first, and compare its size with the free memory.

    Only for the CPU: a GPU says so itself, at once. A model that cannot be constructed on the
    meta device is not checked.

    Raises:
        InputError: `model-too-large`.
    """
    if torch.device(request.device).type != "cpu":
        return
    try:
        with torch.device("meta"):
            model = construct()
    except Exception:  # noqa: BLE001 - whatever is wrong, building it for real says so
        return
    need = sum(map(nbytes, unique(members.tensors(model))))
    free = memory_available()
    if free is not None and need > free:
        raise InputError(
            f"{request.spec} needs {size(need)} for its weights; {size(free)} are free.",
            id="model-too-large",
            remedy="Make it smaller (hf:…?num_hidden_layers=2), use --precision bf16, or count it "
            "without memory: --device meta.",
        )
