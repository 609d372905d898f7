"""Copies a target to the CPU with random values, where its tensors have only shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchgauge.errors import InputError
from torchgauge.targets.contents.walk import Walk
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.fake_tensors import SEED, RandomTensors
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.modules import copied, on_module
from torchgauge.targets.target import Target

# Standard deviation of weights that no layer of torch initialises; usual for language models.
SPREAD = 0.02


def with_values(target: Target) -> Target:
    """Return the target on the CPU, with random weights and inputs where it has no values.

    Layers of torch are filled as torch fills new ones, other parameters with small random numbers,
    buffers with ones. Integers are 0, which every table of embeddings has; masks let all through.
    """
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(SEED)
        return dataclasses.replace(
            target, model=_model(target.model), inputs=_inputs(target.inputs)
        )


def _model(model: Callable[..., Any]) -> Callable[..., Any]:
    module = module_of(model)
    if module is None:
        return model
    return on_module(model, _filled(module))


def _filled(module: nn.Module) -> nn.Module:
    draw = RandomTensors("cpu")
    # A copy takes what the memo holds in the place of a tensor, wherever the tensor is used.
    memo: dict[int, Any] = {}
    for entry in Walk()(module):
        if isinstance(entry.item, torch.Tensor) and _is_empty(entry.item):
            memo[id(entry.item)] = _values(entry.item, draw)
    values = copied(module, memo).to("cpu")
    for original, submodule in zip(module.modules(), values.modules(), strict=True):
        own = [*original.parameters(recurse=False), *original.buffers(recurse=False)]
        if type(submodule).__module__.startswith("torch.nn.") and all(map(_is_empty, own)):
            getattr(submodule, "reset_parameters", lambda: None)()
    return values  # type: ignore[no-any-return]


def _is_empty(tensor: torch.Tensor) -> bool:
    if tensor.is_meta and tensor.layout is not torch.strided:
        raise InputError(
            "A sparse tensor on meta has no values, and none can be made up.",
            id="sparse-without-values",
            cause="Which of its elements are stored is not known there.",
            remedy="Give it on the CPU, or name the target as FILE:NAME, which is loaded there.",
        )
    return tensor.is_meta and not is_lazy(tensor) and type(tensor) in (torch.Tensor, nn.Parameter)


def _values(tensor: torch.Tensor, draw: RandomTensors) -> torch.Tensor:
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if not isinstance(tensor, nn.Parameter):
        return draw.ones(*shape, dtype=dtype) if _real(dtype) else draw.zeros(*shape, dtype=dtype)
    values = draw.zeros(*shape, dtype=dtype)
    if dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        values = draw.normal(*shape, dtype=dtype) * SPREAD
    return nn.Parameter(values, requires_grad=tensor.requires_grad)


def _real(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex or dtype is torch.bool


def _inputs(inputs: Inputs) -> Inputs:
    draw = RandomTensors("cpu")
    named = {id(tensor): name for name, tensor in inputs.tensors()}

    def filled(tensor: torch.Tensor) -> torch.Tensor:
        if not _is_empty(tensor):
            return tensor
        shape, dtype = tuple(tensor.shape), tensor.dtype
        if dtype.is_floating_point or dtype.is_complex:
            return draw.normal(*shape, dtype=dtype)
        if dtype is torch.bool or named[id(tensor)].endswith("mask"):
            return draw.ones(*shape, dtype=dtype)
        return draw.zeros(*shape, dtype=dtype)

    return inputs.map(filled)
