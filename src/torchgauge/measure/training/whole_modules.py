"""Modules whose parameters are divided among devices, as they were before: what their copies need.

FSDP (both kinds) gives each device batches of its own; along the other dimensions of a mesh devices
share one batch's work.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from torchgauge.errors import InputError

Replacement = Callable[[torch.Tensor], torch.Tensor]

_WRAPPERS = ("DistributedDataParallel", "OptimizedModule")
_FSDP1 = "FullyShardedDataParallel"
_FSDP2 = "FSDPModule"
_UNKNOWN = ("DataParallel", "DeepSpeedEngine", "PipelineEngine")
# Modules whose hooks gather parameters, or divide inputs among devices.
_SHARDING = (
    "torch.distributed.fsdp", "torch.distributed.tensor", "transformers.distributed",
    "transformers.integrations.tensor_parallel",
)  # fmt: skip
_HOOKS = (
    "_forward_pre_hooks", "_forward_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
# What FSDP's second kind keeps of itself in a module.
_STATE = "__composable_api_state_key"
# Dimensions of a mesh along which devices do one batch's work, by their usual names.
_TENSOR = ("tp", "tensor", "tensor_parallel", "model")


class Division(NamedTuple):
    """Devices that work on one batch together, and the dtype that FSDP casts parameters to."""

    devices: int = 1
    dtype: str = ""


def unwrapped(module: nn.Module, *, keeps_fsdp: bool = False) -> nn.Module:
    """Return the module inside of wrappers; with `keeps_fsdp` not of FSDP's first kind.

    Raises InputError `sharded-model` for a wrapper that runs it otherwise than one by one.
    """
    while True:
        names = _names(module)
        if unknown := names & set(_UNKNOWN):
            raise sharded(unknown.pop())
        if not names & set(_WRAPPERS) and (keeps_fsdp or _FSDP1 not in names):
            return module
        inner: Any = getattr(module, "_orig_mod", None) or module.module
        module = inner


def class_of(module: nn.Module) -> type[nn.Module]:
    """Return the class that a module had before FSDP made one of its own of it."""
    kind: Any = type(module)
    if _FSDP2 in _names(module):
        kind = kind.__mro__[kind._orig_cls_mro_index]  # noqa: SLF001 - no public name says it
    before: type[nn.Module] = kind
    return before


def division(module: nn.Module) -> Division:
    """Return how a module is divided among devices.

    Raises InputError `sharded-model` where that is not known, as of experts.
    """
    devices, dtype = 1, ""
    replicated = _fsdp_dimensions(module)
    for submodule in module.modules():
        if unknown := _names(submodule) & set(_UNKNOWN):
            raise sharded(unknown.pop())
        for tensor in filter(is_distributed, submodule.parameters(recurse=False)):
            devices = max(devices, _shared_by(tensor, replicated))
        dtype = dtype or _cast(submodule)
    return Division(devices, dtype)


def unsharded(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's shape and type without its values, those of all devices together."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def is_distributed(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a DTensor, which has the shape of all devices' parts together."""
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(tensor, tensors.DTensor)


def prepare(module: nn.Module, memo: dict[int, Any]) -> list[tuple[nn.Module, nn.Module]]:
    """Put modules that FSDP does not let copy into `memo`, empty, and hooks that only shard.

    Returns these modules and their copies, which `fill` completes.
    """
    pairs: list[tuple[nn.Module, nn.Module]] = []
    for submodule in module.modules():
        if _FSDP1 in _names(submodule):
            inner: Any = submodule.module
            memo[id(submodule)] = memo[id(inner)] = class_of(inner).__new__(class_of(inner))
            pairs.append((inner, memo[id(inner)]))
        elif _FSDP2 in _names(submodule):
            kind = class_of(submodule)
            memo[id(submodule)] = kind.__new__(kind)
            pairs.append((submodule, memo[id(submodule)]))
        for name in _HOOKS:
            hooks = vars(submodule)[name]
            memo[id(hooks)] = type(hooks)(
                (key, hook) for key, hook in hooks.items() if not _shards(hook)
            )
    return pairs


def fill(pairs: list[tuple[nn.Module, nn.Module]], memo: dict[int, Any]) -> None:
    """Copy into the empty modules what their originals have, without FSDP's own state."""
    for original, empty in pairs:
        for name, value in vars(original).items():
            if not str(name).startswith(_STATE):
                vars(empty)[name] = copy.deepcopy(value, memo)


def put_whole_parameters(module: nn.Module, memo: dict[int, Any], replacement: Replacement) -> None:
    """Give copies the parameters that FSDP's first kind keeps flat, in their original shapes."""
    for submodule in module.modules():
        handle = getattr(submodule, "_handle", None) if _FSDP1 in _names(submodule) else None
        if handle is None:
            continue
        flat = handle.flat_param
        parameters: dict[tuple[int, str], nn.Parameter] = {}
        for info, shape in zip(flat._param_infos, flat._shapes, strict=True):  # noqa: SLF001
            empty = replacement(torch.empty(shape, dtype=flat.dtype, device="meta"))
            parameter = nn.Parameter(empty, requires_grad=flat.requires_grad)
            parameters[id(info.module), info.param_name] = parameter
            _register(memo[id(info.module)], info.param_name, parameter)
        for info in flat._shared_param_infos:  # noqa: SLF001
            parameter = parameters[id(info.prim_module), info.prim_param_name]
            _register(memo[id(info.module)], info.param_name, parameter)


def holds_flat(module: nn.Module) -> bool:
    """Return whether a module is FSDP's wrapper, of whose tensors copies have none."""
    return _FSDP1 in _names(module)


def sharded(kind: str) -> InputError:
    """Return the error for a module whose FLOPs cannot be counted as if it were whole."""
    return InputError(
        f"The FLOPs of a {kind} cannot be counted during a training.",
        id="sharded-model",
        cause=f"no copy without values is made of a {kind}",
        remedy="Count one rank of such a job with tg.count_parallel.",
    )


def _names(module: nn.Module) -> set[str]:
    return {kind.__name__ for kind in type(module).__mro__}


def _register(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    vars(module).pop(name, None)  # a view of the flat one
    module.register_parameter(name, parameter)


def _shards(hook: Any) -> bool:
    function = getattr(hook, "hook", hook)  # torch wraps those of state dicts
    return str(getattr(function, "__module__", "")).startswith(_SHARDING)


def _fsdp_dimensions(module: nn.Module) -> set[str | None]:
    """Return the names of the dimensions along which FSDP divides; None for a mesh without."""
    names: set[str | None] = set()
    for submodule in module.modules():
        if _FSDP2 in _names(submodule):
            state: Any = submodule._get_fsdp_state()  # type: ignore[operator]  # noqa: SLF001
            # torch 2.11 has one group at most.
            several = vars(state).get("_fsdp_param_groups")
            for group in several or filter(None, [state._fsdp_param_group]):  # noqa: SLF001
                names |= set(group.mesh_info.mesh.mesh_dim_names or (None,))
    return names


def _shared_by(tensor: Any, replicated: set[str | None]) -> int:
    """Return among how many devices a tensor is divided that work on the same batch."""
    mesh = tensor.device_mesh
    names = mesh.mesh_dim_names or (None,) * mesh.ndim
    divided = {
        name: mesh.size(dimension)
        for dimension, (name, placement) in enumerate(zip(names, tensor.placements, strict=True))
        if not placement.is_replicate() and name not in replicated
    }
    for name in divided:
        if name is not None and name not in _TENSOR:
            raise sharded(f"model divided along '{name}'")
    return math.prod(divided.values())


def _cast(module: nn.Module) -> str:
    """Return the dtype to which FSDP casts a module's parameters; empty for none."""
    policy: Any = None
    if _FSDP2 in _names(module):
        policy = module._get_fsdp_state()._mp_policy  # type: ignore[operator]  # noqa: SLF001
    elif _FSDP1 in _names(module):
        policy = module.mixed_precision
    dtype = getattr(policy, "param_dtype", None)
    return "" if dtype is None else str(dtype).removeprefix("torch.")
