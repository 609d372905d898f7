"""Inputs that are made: fake tensors, and tensors of random values."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

from torchgauge import torch_private
from torchgauge.errors import InputError


def any_fake(tensors: Iterable[torch.Tensor]) -> bool:
    """Tell whether one of the tensors is fake."""
    fake_module = sys.modules.get("torch._subclasses.fake_tensor")
    return fake_module is not None and any(
        isinstance(tensor, fake_module.FakeTensor) for tensor in tensors
    )


def check_mode() -> None:
    """Raise InputError `fake-mode` inside of a FakeTensorMode, in which nothing is computed."""
    if torch_private.active_fake_mode() is not None:
        raise InputError(
            "Nothing can be measured inside of a FakeTensorMode.",
            id="fake-mode",
            cause="Every tensor made in it is fake, those of the measurement as well.",
            remedy="Make the model in the mode, leave it, and call tg.count_cost.",
        )


SEED = 0


class RandomTensors:
    """Draws tensors from a generator of its own, on the CPU, and places them on `device`.

    On "meta" nothing is drawn or allocated.
    """

    def __init__(self, device: str, seed: int = SEED) -> None:
        self.device = torch.device(device)
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return values of the standard normal distribution, of a floating or complex dtype."""
        if self.device.type == "meta":
            return torch.empty(shape, dtype=dtype, device=self.device)
        # Drawn in double precision where needed only: float16 then rounds the float32 values.
        drawn = dtype if dtype.is_complex or dtype == torch.float64 else torch.float32
        values = torch.randn(shape, dtype=drawn, generator=self._generator, device="cpu")
        return values.to(self.device, dtype)

    def integers(self, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Return integers in [0, high); for a bool dtype and `high` 2, fair coins."""
        if self.device.type == "meta":
            return torch.empty(shape, dtype=dtype, device=self.device)
        values = torch.randint(0, high, shape, generator=self._generator, device="cpu")
        return values.to(self.device, dtype)

    def ones(self, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Return a tensor of ones."""
        return torch.ones(shape, dtype=dtype, device=self.device)

    def zeros(self, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Return a tensor of zeros."""
        return torch.zeros(shape, dtype=dtype, device=self.device)
