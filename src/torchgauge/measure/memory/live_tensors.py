"""The tensors alive in this process, by part and name, found through Python's collector."""

from __future__ import annotations

import gc
import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torchgauge.records.memory.memory import AliveTensor, Part
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.inputs.tensors import node_of, strided

TOP = 30  # tensors with an entry of their own
_MOST_NODES = 100_000
_Held = tuple[Part, str, str, torch.Tensor]  # part, name, operator


def live_tensors(
    device: str, frames: Sequence[FrameType] = (), *, graphs: bool = True
) -> tuple[AliveTensor, ...]:
    """Return the tensors alive on the device, the largest first, each storage once.

    Frames name what is alive in them. With `graphs`, what autograd alone holds is found from the
    tensors that have a graph. Without: reading it waits for a backward pass of another thread,
    which may wait for Python in turn.
    """
    kind = torch.device(device)
    storages: dict[int, AliveTensor] = {}
    for part, name, operator, tensor in held_tensors(frames, graphs=graphs):
        for plain_tensor in strided(tensor):
            device_found = plain_tensor.device
            if device_found.type != kind.type or device_found.index not in (kind.index, None):
                continue
            storage = plain_tensor.untyped_storage()
            if storage.nbytes() and storage._cdata not in storages:  # noqa: SLF001
                storages[storage._cdata] = AliveTensor(  # noqa: SLF001
                    part=part,
                    name=name,
                    operator=operator,
                    size=storage.nbytes(),
                    shape=tuple(plain_tensor.shape),
                    dtype=str(plain_tensor.dtype).removeprefix("torch."),
                )
    tensors = sorted(storages.values(), key=lambda tensor: -tensor.size)
    return (*tensors[:TOP], *_smaller(tensors[TOP:]))


def _smaller(tensors: list[AliveTensor]) -> Iterator[AliveTensor]:
    """Yield one entry for the tensors of each part."""
    by_part: dict[Part, list[AliveTensor]] = defaultdict(list)
    for tensor in tensors:
        by_part[tensor.part].append(tensor)
    for part, of_part in by_part.items():
        size = sum(tensor.size for tensor in of_part)
        yield AliveTensor(part=part, name="", size=size, count=len(of_part))


def held_tensors(frames: Sequence[FrameType] = (), *, graphs: bool = False) -> Iterator[_Held]:
    """Yield tensors with what they are for; of one that comes twice the first counts."""
    objects = gc.get_objects()
    # By type: `isinstance` asks an object's __class__, which may be the user's code.
    modules = [item for item in objects if issubclass(type(item), nn.Module)]
    optimizers = [item for item in objects if issubclass(type(item), Optimizer)]
    tensors = [item for item in objects if issubclass(type(item), torch.Tensor)]
    names: dict[int, str] = {}
    for module in outermost(modules):
        yield from _in_module(module, names)
    for optimizer in optimizers:
        yield from _in_optimizer(optimizer, names)
    for name, tensor in _in_frames(frames):
        yield "activations", name, "", tensor
    for node, tensor in saved_for_backward(tensors if graphs else []):
        yield "activations", "", node.name(), tensor
    for tensor in tensors:
        yield ("activations" if node_of(tensor) else "workspace"), "", "", tensor


def _in_module(module: nn.Module, names: dict[int, str]) -> Iterator[_Held]:
    """Yield a module's parameters, gradients and buffers, and take note of their names."""
    for name, parameter in module.named_parameters():
        names.setdefault(id(parameter), name)
        yield "parameters", name, "", parameter
        if parameter.grad is not None:
            yield "gradients", f"{name}.grad", "", parameter.grad
    for name, buffer in module.named_buffers():
        yield "buffers", name, "", buffer


def _in_optimizer(optimizer: Optimizer, names: dict[int, str]) -> Iterator[_Held]:
    for parameter, state in optimizer.state.items():
        prefix = names.get(id(parameter), "")
        for key, value in state.items() if isinstance(state, dict) else ():
            for tensor in tensors_in(value, objects=False):
                yield "optimizer", f"{prefix}.{key}", "", tensor


def outermost(modules: list[nn.Module]) -> list[nn.Module]:
    """Return the modules that are in no other, or all of them where names are in circles."""
    inner = {id(child) for module in modules for child in module.children()}
    return [module for module in modules if id(module) not in inner] or modules


def _in_frames(frames: Sequence[FrameType]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the local tensors of frames, the innermost frame first."""
    for frame in reversed(frames):
        for name, value in locals_of(frame):
            if issubclass(type(value), torch.Tensor):
                yield f"{name} in {frame.f_code.co_qualname}", value


def locals_of(frame: FrameType) -> list[tuple[str, Any]]:
    """Return the variables of a frame, which holds them no longer for that."""
    values = frame.f_locals
    items = list(values.items())
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(values, dict):
        values.clear()  # before Python 3.13 it is a copy that the frame keeps
    return items


def saved_for_backward(
    tensors: list[torch.Tensor], visited: set[Any] | None = None
) -> Iterator[tuple[Any, torch.Tensor]]:
    """Yield what the autograd graphs of tensors have saved for backward, with the node.

    Of what hooks packed it is what they made of it: to unpack it may run a checkpoint again.
    `visited` are nodes to leave out, and grows.
    """
    pending = [node for tensor in tensors if (node := node_of(tensor)) is not None]
    visited = set() if visited is None else visited
    while pending and len(visited) < _MOST_NODES:
        node = pending.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        pending += [next_node for next_node, _ in node.next_functions]
        for part in saved_by(node) or ():
            for tensor in tensors_in(part, objects=False):
                yield node, tensor


def saved_by(node: Any) -> list[Any] | None:
    """Return what a node saved, as hooks packed it; None where a backward pass has freed it."""
    names = [name for name in dir(node) if name.startswith("_raw_saved_")]
    try:
        saved = [getattr(node, name) or () for name in names]
        listed = [part if isinstance(part, tuple) else (part,) for part in saved]
        parts = [part.data for group in listed for part in group]
        if all(part is None for part in parts):  # nothing was saved, or reading it raises
            for name in names:
                getattr(node, name.removeprefix("_raw"), None)
    except RuntimeError:
        return None
    return parts
