"""Settings of torch that a test changes, and what puts them back."""

import contextlib

import torch

from torchgauge.device import settings


def torch_set(path, value):
    """Set a switch of torch.backends by its dotted name."""
    *parents, name = path.split(".")
    owner = torch.backends
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, value)


def back_to(before):
    """Put all settings back, those of TF32 from nothing, since they write each other."""
    torch_set("fp32_precision", "none")
    torch.set_float32_matmul_precision("highest")
    settings.apply(before)
    assert settings.read() == before


@contextlib.contextmanager
def restored():
    """Leave the process as it was."""
    before = settings.read()
    try:
        yield before
    finally:
        back_to(before)
