"""torch's per-process settings, TF32 included, read so that another process can measure alike.

torch has two interfaces to these switches, and reading the older one raises where the newer one
was used to write. The newer one can always be read; for writing the older one serves where it is
still readable, so that code which reads it goes on working.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchgauge import torch_private
from torchgauge.signals import restoring

_Read = Callable[[], Any]
_Write = Callable[[Any], object]

# In this order: the older TF32 switches also write the newer ones, which have the last word.
_ATTRIBUTES = (
    "cudnn.allow_tf32",
    "fp32_precision",
    "cudnn.fp32_precision",
    "cuda.matmul.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
    "cuda.matmul.allow_fp16_accumulation",
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.deterministic",
    "mkldnn.enabled",
)
_ATTENTION = ("flash", "mem_efficient", "math", "cudnn")
TF32 = "tf32"
IEEE = "ieee"


def read() -> dict[str, Any]:
    """Return the settings of this process that change how fast or how exactly torch computes.

    Threads, default dtype and device, TF32, cuDNN, oneDNN, attention kernels, determinism,
    autocast, denormals. A switch that cannot be read is absent: those of the older TF32 interface
    raise where the newer one was used, and the newer one says the same.
    """
    settings = {}
    for name, (get, _) in _settings().items():
        try:
            settings[name] = get()
        except RuntimeError:
            continue
    return settings


def apply(settings: dict[str, Any], *, once: bool = False) -> None:
    """Set what differs here; with `once` also what torch lets a process set a single time.

    That is the number of interop threads. It comes after the model is loaded: the user's file may
    set it too, and the second to do so gets an error.
    """
    for name, (get, set_value) in _settings().items():
        if name not in settings or (name == "interop threads" and not once):
            continue
        # Writing one switch may change the next: each is looked at anew.
        if _differs(get, settings[name]):
            set_value(settings[name])


def _differs(get: _Read, value: object) -> bool:
    try:
        return bool(get() != value)
    except RuntimeError:  # TF32's two interfaces disagree, which writing may end
        return True


def _settings() -> dict[str, tuple[_Read, _Write]]:
    settings: dict[str, tuple[_Read, _Write]] = {
        "threads": (torch.get_num_threads, torch.set_num_threads),
        "interop threads": (torch.get_num_interop_threads, torch.set_num_interop_threads),
        "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        # None where nobody has set one, which costs a call less than one that is set.
        "default device": (
            lambda: torch_private.default_device.CURRENT_DEVICE,
            torch.set_default_device,
        ),
        "deterministic": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        # torch has no getter. The processor's flag holds for Python's floats as well.
        "flush denormal": (lambda: sys.float_info.min / 2 == 0.0, torch.set_flush_denormal),
        "cuda.matmul.allow_tf32": _attribute("cuda.matmul.allow_tf32"),
        "float32 matmul precision": (
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
    }
    settings |= {name: _attribute(name) for name in _ATTRIBUTES}
    for kind in _ATTENTION:
        settings[f"{kind} attention"] = (
            getattr(torch.backends.cuda, f"{kind}_sdp_enabled"),
            getattr(torch.backends.cuda, f"enable_{kind}_sdp"),
        )
    for kind in ("cpu", "cuda"):
        settings[f"autocast {kind}"] = (
            functools.partial(torch.is_autocast_enabled, kind),
            functools.partial(torch.set_autocast_enabled, kind),
        )
        settings[f"autocast dtype {kind}"] = (
            functools.partial(torch.get_autocast_dtype, kind),
            functools.partial(torch.set_autocast_dtype, kind),
        )
    return settings


def _attribute(path: str) -> tuple[_Read, _Write]:
    parents, _, name = path.rpartition(".")
    owner = functools.reduce(getattr, filter(None, parents.split(".")), torch.backends)
    return functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)


def switches() -> tuple[str, str]:
    """Return how fp32 matrix products and convolutions are computed on a GPU: "ieee" or "tf32"."""
    matmul = torch.backends.cuda.matmul.fp32_precision
    convolution = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    return (TF32 if matmul == TF32 else IEEE), (TF32 if convolution == TF32 else IEEE)


@restoring
def tf32(*, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 for a block, and put the switches back afterwards."""
    matmul = torch.backends.cuda.matmul
    convolution = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    try:
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        newer = matmul.fp32_precision, convolution.fp32_precision
        matmul.fp32_precision = convolution.fp32_precision = TF32 if allowed else IEEE
        try:
            yield
        finally:
            matmul.fp32_precision, convolution.fp32_precision = newer
        return
    matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
