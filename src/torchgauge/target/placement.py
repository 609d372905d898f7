"""Where and in which precision a target runs, without changing what belongs to the user."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from torchgauge.errors import InputError
from torchgauge.target.inputs import Inputs
from torchgauge.target.target import Target

PRECISIONS = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclasses.dataclass(frozen=True)
class Placement:
    """A target on its device in its precision, ready to be called.

    `method` says how the precision came about: "native" (left as it is), "cast" (parameters and
    floating inputs converted), "autocast", or "tf32" (fp32 with TF32 matrix products).
    """

    target: Target
    model: Callable[..., Any]
    inputs: Inputs
    device: str
    precision: str
    method: str

    @contextlib.contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Hold the precision for a block, and put torch's switches back afterwards."""
        if self.method == "autocast":
            kind = self.device.partition(":")[0]
            with torch.autocast(kind, dtype=PRECISIONS[self.precision]):
                yield
        elif self.device.startswith("cuda") and self.method in ("tf32", "cast"):
            with _tf32(allowed=self.method == "tf32"):
                yield
        else:
            yield


@contextlib.contextmanager
def _tf32(*, allowed: bool) -> Iterator[None]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (matmul.allow_tf32, cudnn.allow_tf32)
    matmul.allow_tf32 = cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def place(
    target: Target,
    *,
    device: str | None = None,
    precision: str | None = None,
    training: bool = False,
    owned: bool = False,
) -> Placement:
    """Return the target ready to run; a model that is not `owned` is copied before a change.

    `device` and `precision` None leave the model as it is. Low precision is a cast for inference
    and autocast for training. Raises InputError `precision-unknown`, `precision-unsupported`,
    `not-a-module`.
    """
    if precision is not None and precision not in PRECISIONS:
        raise InputError(
            f"Unknown precision '{precision}'.",
            id="precision-unknown",
            cause=f"Precisions are {', '.join(PRECISIONS)}.",
            remedy="Choose one of them, or none to leave the model as it is.",
        )
    home = device_of(target)
    where = device or home
    low = precision in ("bf16", "fp16")
    autocast = low and training
    dtype = None if precision is None or autocast else PRECISIONS[precision]
    check_supported(precision, where)
    model = _moved(target.model, home, where, dtype, precision, owned=owned)
    return Placement(
        target=target,
        model=model,
        inputs=target.inputs.map(lambda tensor: _convert(tensor, where, dtype)),
        device=where,
        precision=precision or _native_precision(target),
        method=_method(precision, autocast=autocast),
    )


def _method(precision: str | None, *, autocast: bool) -> str:
    if precision is None:
        return "native"
    if precision == "tf32":
        return "tf32"
    return "autocast" if autocast else "cast"


def _convert(tensor: torch.Tensor, device: str, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor.to(device, dtype if tensor.is_floating_point() else None)


def _moved(
    model: Callable[..., Any],
    home: str,
    where: str,
    dtype: torch.dtype | None,
    precision: str | None,
    *,
    owned: bool,
) -> Callable[..., Any]:
    if not isinstance(model, nn.Module):
        if precision is not None:
            raise InputError(
                f"The precision of a plain callable cannot be set to {precision}.",
                id="not-a-module",
                cause=f"{type(model).__name__} has no parameters that could be converted.",
                remedy="Give a torch.nn.Module, or convert it yourself and leave --precision out.",
            )
        return model
    floats = {t.dtype for t in model.parameters() if t.is_floating_point()}
    floats |= {t.dtype for t in model.buffers() if t.is_floating_point()}
    if home == where and (dtype is None or floats <= {dtype}):
        return model
    # A module's .to() changes it in place, so a model that is not ours is copied first.
    return (model if owned else copy.deepcopy(model)).to(device=where, dtype=dtype)


def device_of(target: Target) -> str:
    """Return the device of the first parameter or buffer, else of the first input, else "cpu"."""
    if isinstance(target.model, nn.Module):
        for tensor in (*target.model.parameters(), *target.model.buffers()):
            return str(tensor.device)
    for _, tensor in target.inputs.tensors():
        return str(tensor.device)
    return "cpu"


def _native_precision(target: Target) -> str:
    if isinstance(target.model, nn.Module):
        tensors: list[torch.Tensor] = list(target.model.parameters())
    else:
        tensors = [tensor for _, tensor in target.inputs.tensors()]
    weight: Counter[torch.dtype] = Counter()
    for tensor in filter(torch.is_floating_point, tensors):
        weight[tensor.dtype] += tensor.numel() * tensor.element_size()
    if not weight:
        return "unknown"
    dtype = weight.most_common(1)[0][0]
    return NAMES.get(dtype, str(dtype).removeprefix("torch."))


def check_supported(precision: str | None, device: str) -> None:
    """Raise InputError `precision-unsupported` for what the device cannot do at all."""
    if precision == "tf32" and not (
        device.startswith("cuda") and torch.cuda.get_device_capability(device) >= (8, 0)
    ):
        raise InputError(
            f"tf32 is not supported on {device}.",
            id="precision-unsupported",
            cause="TF32 matrix products exist on NVIDIA GPUs from Ampere on.",
            remedy="Use --precision fp32, or a device that has TF32.",
        )
    if (
        precision == "bf16"
        and device.startswith("cuda")
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        raise InputError(
            f"bf16 is not supported on {device}.",
            id="precision-unsupported",
            cause="The GPU has no bf16 arithmetic; torch would emulate it.",
            remedy="Use --precision fp16 or fp32.",
        )
