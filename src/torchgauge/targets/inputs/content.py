"""How many samples, tokens and images one call processes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torchgauge.targets.inputs.inputs import Inputs

if TYPE_CHECKING:
    import torch

    from torchgauge.targets.target import Target

TOKEN_INPUTS = ("input_ids", "decoder_input_ids")
IMAGE_INPUTS = ("pixel_values", "image", "images")
IMAGE_CHANNELS = (1, 3, 4)
SMALLEST_SIDE = 8
IMAGE_RANK = 4


def with_inputs(target: Target, inputs: Inputs) -> Target:
    """Return the target with these inputs, and how many samples, tokens and images they are."""
    return dataclasses.replace(
        target,
        inputs=inputs,
        batch=batch_of(inputs),
        tokens=tokens_of(inputs, target.model),
        images=images_of(inputs),
    )


def batch_of(inputs: Inputs) -> int | None:
    """Return the leading dimension that all tensors with dimensions share, else None.

    A list of images, as detection models take, counts its members; a nested tensor its parts; a
    packed sequence its sequences. Tensors in objects (a cache) count where no others are.
    """
    import torch
    from torch.nn.utils.rnn import PackedSequence

    if len(inputs.args) == 1 and isinstance(inputs.args[0], list):
        return len(inputs.args[0])
    sizes: dict[bool, set[int]] = {False: set(), True: set()}
    packed: set[int] = set()
    for entry in inputs.walk(torch.nn.Module):
        item = entry.item
        if isinstance(item, PackedSequence):
            packed |= set(map(id, item))
            sizes[entry.in_object].add(int(item.batch_sizes[0]))
        elif isinstance(item, torch.Tensor) and item.dim() and id(item) not in packed:
            sizes[entry.in_object].add(item.size(0))
    nearest = sizes[False] or sizes[True]
    return nearest.pop() if len(nearest) == 1 else None


def tokens_of(inputs: Inputs, model: Callable[..., Any]) -> int | None:
    """Return batch × sequence of the token inputs, those of encoder and decoder added up.

    Both are processed by the model in one call, each by its own stack. A positional input has the
    name that the model's signature gives it.
    """
    in_objects = {name.rpartition(".")[2]: tensor for name, tensor in inputs.tensors()}
    named = {**in_objects, **_by_name(inputs, model)}
    counts = [named[name].numel() for name in TOKEN_INPUTS if hasattr(named.get(name), "numel")]
    return sum(counts) if counts else None


def _by_name(inputs: Inputs, model: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the inputs by the names of the model's parameters; without a signature, by keyword."""
    try:
        signature = inspect.signature(getattr(model, "forward", model))
        bound = signature.bind_partial(*inputs.args, **inputs.kwargs)
    except Exception:  # noqa: BLE001 - an object may answer, and raise, anything when asked
        return inputs.kwargs
    return {**bound.arguments, **inputs.kwargs}


def images_of(inputs: Inputs) -> int | None:
    """Return how many images there are in the first input that is one by name and by shape.

    A positional input has no name against it; `input_features` of the same shape is sound. An
    image input is a floating tensor (N, C, H, W) with 1, 3 or 4 channels and sides of at least 8,
    or a list of (C, H, W).
    """
    if len(inputs.args) == 1 and isinstance(inputs.args[0], list):
        return len(inputs.args[0]) or None
    for name, tensor in inputs.tensors():
        named = name.rpartition(".")[2] in IMAGE_INPUTS or name.isdecimal()
        if named and _looks_like_images(tensor):
            return int(tensor.shape[0])
    return None


def _looks_like_images(tensor: torch.Tensor) -> bool:
    return (
        tensor.dim() == IMAGE_RANK
        and not tensor.is_nested
        and tensor.is_floating_point()
        and tensor.shape[1] in IMAGE_CHANNELS
        and min(tensor.shape[2:]) >= SMALLEST_SIDE
    )
