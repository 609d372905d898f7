"""Fake tensors: they have shapes, and no numbers and no memory, on whatever device they say."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

from torchgauge.errors import InputError


def any_fake(tensors: Iterable[torch.Tensor]) -> bool:
    """Tell whether one of the tensors is fake."""
    fake_module = sys.modules.get("torch._subclasses.fake_tensor")
    return fake_module is not None and any(
        isinstance(tensor, fake_module.FakeTensor) for tensor in tensors
    )


def check_mode() -> None:
    """Raise InputError `fake-mode` inside of a FakeTensorMode, in which nothing is computed."""
    from torch._guards import active_fake_mode

    if active_fake_mode() is not None:
        raise InputError(
            "Nothing can be measured inside of a FakeTensorMode.",
            id="fake-mode",
            cause="Every tensor made in it is fake, those of the measurement as well.",
            remedy="Make the model in the mode, leave it, and call tg.count_cost.",
        )
