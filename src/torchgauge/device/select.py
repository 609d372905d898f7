"""Resolve a user's device name to a device that is present."""

from __future__ import annotations

import re

from torchgauge.device.base import Device
from torchgauge.device.cpu import Cpu
from torchgauge.errors import InputError

_NAME = re.compile(r"cpu|meta|auto|cuda(:[0-9]+)?")
_LIKELY = re.compile(r"(?:cuda|gpu|nvidia)[:\s]?([0-9]*)")


def resolve(name: str | None) -> str:
    """Return "cpu", "cuda:N" or "meta" for what was asked; "auto" takes the GPU if there is one.

    Raises InputError `device-unknown`, `device-absent`: a GPU that was asked for and is not there
    is never replaced by the CPU.
    """
    name = "cpu" if name is None else device_named(name)
    if name in ("cpu", "meta"):
        return name
    import torch

    kind, _, index = name.partition(":")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "auto" and count == 0:
        return "cpu"
    number = int(index) if index else (torch.cuda.current_device() if count else 0)
    if number >= count:
        raise _absent(name, count)
    return f"cuda:{number}"


def device_named(name: object) -> str:
    """Return a device's name as torch writes it; whether it is there is not looked at.

    Raises InputError `device-unknown`.
    """
    lower = str(name).strip().lower()
    if _NAME.fullmatch(lower):
        return lower
    likely = _LIKELY.fullmatch(lower)
    index = f":{likely[1]}" if likely and likely[1] else ""
    raise InputError(
        f"Unknown device '{name}'.",
        id="device-unknown",
        cause="Devices are cpu, cuda, cuda:N, auto and meta.",
        remedy=f"Did you mean cuda{index}?"
        if likely
        else "Use --device cpu, or --device cuda for a GPU.",
    )


def _absent(name: str, count: int) -> InputError:
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        cause = f"torch {torch.__version__} is built without GPU support."
        remedy = "Install a CUDA build of torch, or use --device cpu."
    elif count == 0:
        cause = "torch sees no GPU (driver missing, or CUDA_VISIBLE_DEVICES hides it)."
        remedy = "Check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu."
    else:
        cause = (
            f"This machine has {count} GPU{'s' if count > 1 else ''}: cuda:0 … cuda:{count - 1}."
        )
        remedy = "Choose one of them."
    return InputError(
        f"Device '{name}' is not available.", id="device-absent", cause=cause, remedy=remedy
    )


def open_device(name: str) -> Device:
    """Return the device for torch's name of it; "meta" runs nothing and counts as the CPU.

    Raises InputError `device-unsupported` for a device nobody here can wait for.
    """
    if name.startswith("cuda"):
        from torchgauge.device.cuda import Cuda

        return Cuda(int(name.partition(":")[2] or 0))
    if name.partition(":")[0] not in ("cpu", "meta"):
        raise InputError(
            f"Nothing can be timed on '{name}'.",
            id="device-unsupported",
            cause="Only the CPU and CUDA devices can be waited for.",
            remedy="Move the model to cpu or cuda.",
        )
    return Cpu()
