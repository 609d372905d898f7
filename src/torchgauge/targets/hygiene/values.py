"""Saves the values of a model's tensors and inputs: restores copies, watches the others.

Buffers are copied where they are: they are small, and forwards do write to them. Parameters are
copied for training, to the host: they may fill a device to the half. For inference, parameters,
gradients and inputs are copied smallest first up to COPIED bytes, the rest is watched: a write
shows in torch's version counter, or in a few elements where it went through `.data`, which does
not count. A tensor that was given another storage gets its own back in any case.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch

from torchgauge import torch_private
from torchgauge.signals import run_all
from torchgauge.targets import members
from torchgauge.targets.hygiene.kept import Restoration, Role
from torchgauge.targets.inputs.fake_tensors import any_fake
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.inputs.tensors import extent, strided, version_of

COPIED = 1 << 20  # bytes; copying them takes about a millisecond
SMALL = 1 << 10  # bytes; a tensor below that is copied together with others
SAMPLED = 16  # elements of a tensor that is not copied

_JOINED = frozenset(
    {torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool}
)

Named = tuple[Role, str, torch.Tensor]


@dataclasses.dataclass(slots=True)
class _Watched:
    """A tensor, another view of its storage, and the copy or sample to compare it with."""

    name: str
    role: Role
    tensor: torch.Tensor
    alias: torch.Tensor
    version: int | None
    saved: torch.Tensor | None = None
    sample: torch.Tensor | None = None
    unchanged: bool = False

    def changed(self) -> bool:
        """Whether the content differs; the storage must be the tensor's own again."""
        if self.unchanged:
            return False
        if self.saved is not None:
            same_device = self.alias.device == self.saved.device
            return not _equal(
                self.alias if same_device else self.alias.to(self.saved.device), self.saved
            )
        if version_of(self.alias) != self.version:
            return True
        elements = _sample(self.alias)
        return (
            elements is not None and self.sample is not None and not _equal(elements, self.sample)
        )


@dataclasses.dataclass(slots=True)
class _CopyGroup:
    """Small tensors of one dtype on the host, copied and compared as one tensor."""

    items: list[_Watched]
    copy: torch.Tensor

    def compare(self) -> None:
        """Mark tensors without a change; where any differs, give each its part of the copy."""
        if torch.equal(_joined(self.items), self.copy):
            for item in self.items:
                item.unchanged = True
            return
        start = 0
        for item in self.items:
            part = self.copy[start : start + item.alias.numel()]
            item.saved = part.view(item.alias.shape)
            start += part.numel()


def save_values(
    model: torch.nn.Module | None,
    inputs: tuple[Inputs, ...],
    restoration: Restoration,
    extra_tensors: Iterable[Named] = (),
    *,
    training: bool,
) -> Callable[[], None]:
    """Save contents, count the copies in `restoration`; the restore function notes changes there.

    `extra_tensors` are no module's own: they are in attributes and containers.
    """
    watched = list(_watch([*_tensors(model, inputs), *extra_tensors]))
    with torch.inference_mode():
        groups = _save(watched, restoration, training=training)

    def restore() -> None:
        # Inference mode may write to its own tensors as well as to ordinary ones.
        with torch.inference_mode():
            run_all(
                [
                    *(group.compare for group in groups),
                    *(partial(_put_back, item, restoration, training=training) for item in watched),
                ]
            )

    return restore


def _tensors(model: torch.nn.Module | None, inputs: tuple[Inputs, ...]) -> Iterator[Named]:
    if model is not None:
        for name, tensor in members.named(model, "_buffers"):
            yield "buffer", name, tensor
        for name, tensor in members.named(model, "_parameters"):
            yield "parameter", name, tensor
            if tensor.is_leaf and tensor.grad is not None:
                yield "gradient", f"{name}.grad", tensor.grad
    for call_inputs in inputs:
        for name, tensor in call_inputs.tensors():
            yield "input", name, tensor


def _watch(tensors: Iterable[Named]) -> Iterator[_Watched]:
    seen_ids: set[int] = set()
    with torch.inference_mode(mode=False):  # a view made inside would have no version
        for role, name, tensor in tensors:
            if id(tensor) in seen_ids or tensor.is_meta:
                continue
            seen_ids.add(id(tensor))
            for part in strided(tensor):
                if _readable(part):
                    yield _Watched(name, role, part, part.detach(), version_of(part))


def _readable(tensor: torch.Tensor) -> bool:
    """Whether there is memory behind it: not in a fake tensor, nor in one sharded elsewhere."""
    if any_fake([tensor]):
        return False
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return tensor.numel() == 0 or tensor.untyped_storage().nbytes() > 0


def _save(watched: list[_Watched], restoration: Restoration, *, training: bool) -> list[_CopyGroup]:
    budget = COPIED
    small: defaultdict[torch.dtype, list[_Watched]] = defaultdict(list)
    sizes = [item.alias.nbytes for item in watched]
    for index in sorted(range(len(watched)), key=sizes.__getitem__):
        item, size = watched[index], sizes[index]
        if size <= min(SMALL, budget) and item.alias.dtype in _JOINED and item.alias.is_cpu:
            small[item.alias.dtype].append(item)
            budget -= size
        elif item.role == "buffer":
            item.saved = item.alias.clone()
        elif training and item.role == "parameter":
            item.saved = _on_host(item.alias)
        elif size <= budget:
            item.saved = _on_host(item.alias)
            budget -= size
        else:
            item.sample = _sample(item.alias)
            item.sample = None if item.sample is None else item.sample.clone()
        if item.saved is not None:
            restoration.count(item.saved)
    groups = [_CopyGroup(items, _joined(items).clone()) for items in small.values()]
    for group in groups:
        restoration.count(group.copy)
    return groups


def _joined(items: list[_Watched]) -> torch.Tensor:
    aliases = [item.alias for item in items]
    joined: torch.Tensor = torch_private.joined(aliases)
    return joined


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    # On the host already, a clone takes half the time of a copy to it.
    return tensor.clone() if tensor.is_cpu else tensor.to("cpu", copy=True)


def _put_back(item: _Watched, restoration: Restoration, *, training: bool) -> None:
    tensor, alias = item.tensor, item.alias
    moved = not _same_storage(tensor, alias)
    # Nothing to say where only the place is another (an RNN that flattens its weights).
    changed = moved and not _same_layout(tensor, alias)
    if moved:
        changed = changed or not _equal(tensor.detach(), alias)
        with torch.inference_mode(mode=False):
            tensor.data = alias
    put_back = True
    if item.changed():
        changed, put_back = True, item.saved is not None
        # An unneeded write would invalidate a graph the caller is about to differentiate.
        if item.saved is not None:
            alias.copy_(item.saved)
    if not changed:
        return
    if item.role == "input":
        restoration.inputs[item.name] = put_back and restoration.inputs.get(item.name, True)
    elif not training or not put_back:
        restoration.progressed = True
        (restoration.restored if put_back else restoration.altered).append(item.name)


def _same_storage(first: torch.Tensor, second: torch.Tensor) -> bool:
    return _same_layout(first, second) and extent(first) == extent(second)


def _same_layout(first: torch.Tensor, second: torch.Tensor) -> bool:
    return (
        first.dtype is second.dtype
        and first.shape == second.shape
        and first.device == second.device
    )


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    if torch.equal(first, second):
        return True
    # Looked at closer only where there is a NaN: the comparison below is a tensor of its own.
    if not first.is_floating_point() or first.dtype.itemsize < 2 or not second.sum().isnan():
        return False
    equal_elements = (first == second) | (
        (first != first) & (second != second)
    )  # a NaN is not itself
    return bool(equal_elements.all())


def _sample(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a view of about SAMPLED elements, None where the memory is not contiguous."""
    if tensor.is_quantized:
        return None
    if not tensor.is_contiguous():
        tensor = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
        if not tensor.is_contiguous():
            return None
    return tensor.view(-1)[:: max(tensor.numel() // SAMPLED, 1)]
