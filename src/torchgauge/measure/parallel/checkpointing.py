"""Activation checkpointing of a model's repeated layers: whole, or without the dearest products."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from torchgauge import torch_private
from torchgauge.errors import InputError
from torchgauge.measure.parallel.parallel_options import Checkpoint

_aten = torch.ops.aten
_PRODUCTS = (_aten.mm.default, _aten.addmm.default)
_SAVED = {
    *_PRODUCTS,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001 - an operator
    _aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
    torch_private.reduce_scatter,
}


def repeated_layers(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the model's repeated layers, each as its container and its name in that.

    A container's members are repeated layers where it has two or more, all of one class and with
    parameters; layers inside of such a layer are part of it.
    """
    layers: list[tuple[nn.Module, str]] = []
    pending = [model]
    while pending:
        module = pending.pop(0)
        members = [(name, child) for name, child in module.named_children() if child is not None]
        kinds = {type(child) for _, child in members}
        is_container = isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential)
        if is_container and len(members) > 1 and len(kinds) == 1 and _has_parameters(members):
            layers += [(module, name) for name, _ in members]
        else:
            pending += [child for _, child in members]
    return layers


def checkpoint(model: nn.Module, how: Checkpoint) -> None:
    """Wrap each repeated layer, in place, to compute its activations again in the backward pass.

    "full" keeps the layer's inputs; "op" also what attention, reductions between ranks and every
    second product give, as torchtitan's selective checkpointing does. Raises InputError
    `recipe-unfit` for a model without repeated layers.
    """
    if how == "none":
        return
    layers = repeated_layers(model)
    if not layers:
        raise InputError(
            "The model has no repeated layers that could be checkpointed.",
            id="recipe-unfit",
            cause="No ModuleList or Sequential of it holds two layers of one class.",
            remedy="Checkpoint in a function of your own that takes `mesh`, and give that.",
        )
    for container, name in layers:
        layer = container.get_submodule(name)
        arguments: dict[str, Any] = {"preserve_rng_state": False}
        if how == "op":
            arguments["context_fn"] = _selective
        container.register_module(name, torch_private.checkpoint_wrapper(layer, **arguments))


def _selective() -> Any:
    calls: Counter[bool] = Counter()

    def policy(context: Any, function: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        if function in _PRODUCTS:
            calls[context.is_recompute] += 1
            if calls[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        saved = function in _SAVED
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]


def _has_parameters(members: list[tuple[str, nn.Module]]) -> bool:
    return all(next(child.parameters(), None) is not None for _, child in members)
