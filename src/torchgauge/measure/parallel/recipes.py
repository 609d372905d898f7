"""Sharding a plain model by the names of the mesh's dimensions: fsdp, tp, ddp."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from torchgauge.errors import InputError
from torchgauge.measure.parallel.checkpointing import checkpoint, repeated_layers
from torchgauge.measure.parallel.parallel_options import ParallelOptions

RECIPES = ("fsdp", "tp", "ddp")
_OWN = "Give a function of your own that takes `mesh` and shards: file.py:function."
# What transformers call their styles, as torch's.
_STYLES: dict[str, Callable[[], Any]] = {
    "colwise": ColwiseParallel,
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise": RowwiseParallel,
    "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
    "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
    "sequence_parallel": SequenceParallel,
}


def check_recipes(options: ParallelOptions) -> None:
    """Raise InputError `recipe-unknown` for dimensions or combinations that no recipe has."""
    names = set(options.sizes)
    unknown = names.difference(RECIPES)
    if unknown:
        raise InputError(
            f"No recipe shards a plain model along '{min(unknown)}'.",
            id="recipe-unknown",
            cause=f"Recipes are {', '.join(RECIPES)}: what pipelines, context and expert "
            "parallelism divide differs from model to model.",
            remedy=_OWN,
        )
    if {"ddp", "tp"} <= names and "fsdp" not in names:
        raise InputError(
            "No recipe joins ddp with tp.",
            id="recipe-unknown",
            cause="DDP does not reduce the gradients of parameters that tp has sharded.",
            remedy="Name the dimension fsdp; or " + _OWN[:1].lower() + _OWN[1:],
        )


def shard(model: nn.Module, mesh: DeviceMesh, options: ParallelOptions) -> nn.Module:
    """Return the model sharded as the mesh's dimensions say, changed in place.

    First tp by the model's own plan, then checkpointing, then fsdp of each repeated layer and the
    whole, with ddp around it as replicas of the shards; or ddp alone.

    Raises InputError `recipe-unknown`, `recipe-unfit`, `mesh-does-not-divide`.
    """
    check_recipes(options)
    names = options.sizes
    if options.precision is not None and ("fsdp" not in names or options.precision == "fp32"):
        model.to(torch.bfloat16 if options.precision == "bf16" else torch.float32)
    if names.get("tp", 1) > 1:
        parallelize_module(model, mesh["tp"], _plan(model, names["tp"]))
    checkpoint(model, options.checkpoint or "none")
    if "fsdp" in names:
        _fully_shard(model, mesh, options)
    elif "ddp" in names:
        return DistributedDataParallel(model, device_mesh=mesh["ddp"])
    return model


def _fully_shard(model: nn.Module, mesh: DeviceMesh, options: ParallelOptions) -> None:
    arguments: dict[str, Any] = {
        "mesh": mesh["ddp", "fsdp"] if "ddp" in options.sizes else mesh["fsdp"]
    }
    if options.precision == "bf16":
        arguments["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
    for container, name in repeated_layers(model):
        fully_shard(container.get_submodule(name), **arguments)
    fully_shard(model, **arguments)


def _plan(model: nn.Module, size: int) -> dict[str, Any]:
    """Return the model's own plan of tensor parallelism, by module path."""
    own = getattr(model, "_tp_plan", None) or getattr(model, "base_model_tp_plan", None)
    if not own:
        raise InputError(
            f"{type(model).__name__} has no plan of tensor parallelism.",
            id="recipe-unfit",
            cause="The recipe tp takes the model's own plan (`_tp_plan`, of transformers).",
            remedy=_OWN,
        )
    _check_heads(model, size)
    plan = {}
    for path, _ in model.named_modules():
        style = own.get(path) or own.get(re.sub(r"\.\d+(?=\.|$)", ".*", path))
        if style is None:
            continue
        if style not in _STYLES:
            raise InputError(
                f"The style '{style}' of {path} has no counterpart in torch.",
                id="recipe-unfit",
                cause=f"The recipe tp knows {', '.join(_STYLES)}.",
                remedy=_OWN,
            )
        plan[path] = _STYLES[style]()
    return plan


def _check_heads(model: nn.Module, size: int) -> None:
    config = getattr(model, "config", None)
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, name, None)
        if isinstance(heads, int) and heads % size:
            raise InputError(
                f"A mesh with tp={size} does not divide the model's {heads} heads.",
                id="mesh-does-not-divide",
                cause=f"{name} is {heads}; each rank needs as many whole heads as others.",
                remedy=f"Choose a divisor of {heads} for tp.",
            )
