"""The device and precision of a target, set without changing the user's objects."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchgauge.analyze.onnx.graph_size import floating_precision
from torchgauge.device.settings import tf32
from torchgauge.errors import InputError
from torchgauge.records.record import GradMode
from torchgauge.targets import members
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.fake_tensors import any_fake, check_mode
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.modules import copied, on_module
from torchgauge.targets.precisions import precision_named
from torchgauge.targets.target import Target

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
GRAD_MODES: tuple[GradMode, ...] = ("inference_mode", "no_grad", "enable_grad")
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclasses.dataclass(frozen=True)
class Placement:
    """A target on its device in its precision, ready to be called.

    `method` says how the precision came about: "native" (left as it is), "cast" (parameters and
    floating inputs converted) or "autocast". `tf32` says whether matrix products and convolutions
    of fp32 may use TF32 on a GPU; None leaves torch's switches as they are. `grad_modes` are those
    that an inference may need, the first of them in use; the first call that succeeds leaves one.
    """

    target: Target
    model: Callable[..., Any]
    inputs: Inputs
    device: str
    precision: str
    method: str
    tf32: bool | None = None
    grad_modes: list[GradMode] = dataclasses.field(
        default_factory=lambda: list(GRAD_MODES), compare=False
    )

    @functools.cached_property
    def computes(self) -> bool:
        """Whether a call computes anything: not on the meta device, nor with fake tensors.

        Raises InputError `fake-mode` inside of a FakeTensorMode.
        """
        check_mode()
        tensors = members.tensors(module_of(self.model))
        tensors += [tensor for _, tensor in self.inputs.tensors()]
        return self.device != "meta" and not any_fake(tensors)

    @contextlib.contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Hold the precision for a block, and put torch's switches back afterwards."""
        if self.method == "autocast":
            kind = self.device.partition(":")[0]
            with torch.autocast(kind, dtype=DTYPES[self.precision]):
                yield
        elif self.device.startswith("cuda") and self.tf32 is not None:
            with tf32(allowed=self.tf32):
                yield
        else:
            yield


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
    `not-a-module`, `several-devices`, `not-copyable`, `fake-mode`.
    """
    precision = None if precision is None else precision_named(precision)
    module = module_of(target.model)
    homes = devices_of(target)
    run_device = device or _only(homes, target)
    autocast = training and precision in ("bf16", "fp16")
    dtype = None if precision is None or autocast else DTYPES[precision]
    check_supported(precision, run_device)
    cast = dtype is not None and (module is None or not _floats(module) <= {dtype})
    model = target.model
    if cast or homes != [run_device]:
        model = _changed(target, run_device, dtype, owned=owned)
    elif module is not None and not owned and any(map(is_lazy, members.tensors(module))):
        model = on_module(model, copied(module))  # the first call makes its parameters, for good
    return Placement(
        target=target,
        model=model,
        inputs=target.inputs.map(lambda tensor: _convert(tensor, run_device, dtype)),
        device=run_device,
        precision=precision or native_precision(target),
        method="autocast" if autocast else "cast" if cast else "native",
        tf32=None if precision is None else precision == "tf32",
        grad_modes=list(GRAD_MODES[1:] if module is not None and _gathers(module) else GRAD_MODES),
    )


def _gathers(module: nn.Module) -> bool:
    """Whether FSDP of the second kind gathers its parameters, for good as inference tensors."""
    kinds = {type(submodule) for submodule in module.modules()}
    return any(base.__name__ == "FSDPModule" for kind in kinds for base in kind.__mro__)


def _convert(tensor: torch.Tensor, device: str, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor.to(device, dtype if tensor.is_floating_point() else None)


def _floats(module: nn.Module) -> set[torch.dtype]:
    return {tensor.dtype for tensor in members.tensors(module) if tensor.is_floating_point()}


def _changed(
    target: Target, device: str, dtype: torch.dtype | None, *, owned: bool
) -> Callable[..., Any]:
    if not isinstance(target.model, nn.Module):
        change = f"moved to {device}" if dtype is None else f"converted to {dtype}"
        raise InputError(
            f"A plain callable cannot be {change}.",
            id="not-a-module",
            cause=f"{target.name} has no parameters that torchgauge could move or convert.",
            remedy="Give a torch.nn.Module, or convert it yourself and leave the option out.",
        )
    # A module's .to() changes it in place, so a model of the caller's is copied first.
    model = target.model if owned else copied(target.model)
    return model.to(device=device, dtype=dtype)


def devices_of(target: Target) -> list[str]:
    """Return the devices of parameters and buffers, else that of the first input, else the CPU.

    Of what is offloaded it is the one on which it runs.
    """
    module = module_of(target.model)
    tensors = members.tensors(module)
    if not tensors:
        tensors = [tensor for _, tensor in target.inputs.tensors()][:1]
    running = members.offloaded(module)
    return sorted({running.get(id(t)) or str(t.device) for t in tensors}) or ["cpu"]


def countable_on(target: Target) -> str | None:
    """Return "meta" for a model of which a part is on "meta": a copy of the rest has no values.

    A constructor that makes a tensor of its own beside the default device leaves such a model.
    None where the model can be counted where it is.
    """
    homes = devices_of(target)
    return "meta" if "meta" in homes and len(homes) > 1 else None


def _only(devices: list[str], target: Target) -> str:
    if len(devices) > 1:
        raise InputError(
            f"The model is spread over {', '.join(devices)}.",
            id="several-devices",
            cause=f"Time and memory are measured on one device; {_scattered(target)}.",
            remedy="Move it to one (model.to), or give device=… to measure a copy there.",
        )
    return devices[0]


def _scattered(target: Target) -> str:
    """Say how many tensors are on each device, and name one of each."""
    module = module_of(target.model)
    names: dict[str, list[str]] = {}
    if module is not None:
        own = [*members.named(module, "_parameters"), *members.named(module, "_buffers")]
        for name, tensor in own:
            names.setdefault(str(tensor.device), []).append(name)
    counts = (
        f"{device}: {len(tensor_names):,} ({tensor_names[0]}, …)"
        for device, tensor_names in names.items()
    )
    return f"tensors are on {'; on '.join(counts)}"


def native_precision(target: Target) -> str:
    """Return the dtype of most bytes of the parameters, of a callable those of its inputs."""
    if target.graph is not None:
        return floating_precision(target.graph)
    module = module_of(target.model)
    tensors = [tensor for _, tensor in target.inputs.tensors()]
    if module is not None:
        tensors = members.parameters(module)
    weight: Counter[torch.dtype] = Counter()
    for dtype, group in itertools.groupby(
        itertools.filterfalse(is_lazy, tensors), key=lambda tensor: tensor.dtype
    ):
        if dtype.is_floating_point:
            weight[dtype] += sum([tensor.numel() * tensor.element_size() for tensor in group])
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
