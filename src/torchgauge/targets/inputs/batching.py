"""Changes the batch size or the sequence length of inputs."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from torchgauge import torch_private
from torchgauge.errors import InputError, by_operator
from torchgauge.similar import similar
from torchgauge.targets import members
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.inputs import Inputs

LONGEST_SIGNATURE = 200


def check_call(model: Callable[..., Any], inputs: Inputs) -> None:
    """Raise InputError where the model's signature takes no such call; nothing is called.

    `input-missing` where nothing is given that must be, else `inputs-unfit`. What a decorator or a
    hook may add or rename is not judged.
    """
    call = _called(model)
    signature = None if call is None else _signature(call)
    if call is None or signature is None:
        return
    try:
        signature.bind(*inputs.args, **inputs.kwargs)
    except TypeError as error:
        remedy = unfit(inputs) or _nearest(signature, inputs)
        has_inputs = bool(inputs.args or inputs.kwargs)
        raise InputError(
            f"The inputs do not fit the model, which is called as {written(call)}."
            if has_inputs
            else f"The model is called as {written(call)}, and no inputs are given.",
            id="inputs-unfit" if has_inputs else "input-missing",
            cause=f"{str(error)[:1].upper()}{str(error)[1:]}." if has_inputs else "",
            remedy=remedy or "Give one value for each: a tuple by position, a mapping by name.",
        ) from None


def unfit(inputs: Inputs) -> str:
    """Return what to give in place of inputs that few models take, "" where nothing stands out."""
    values = [*inputs.args, *inputs.kwargs.values()]
    if not values:
        return "Give its inputs, such as torch.randn(1, 3, 224, 224); a tuple of several."
    if all(isinstance(value, int) for value in values):
        shape = ", ".join(map(str, values))
        return f"Give a tensor of that shape: torch.randn({shape})."
    if any(isinstance(value, np.ndarray) for value in values):
        return "Give tensors in place of NumPy arrays: torch.from_numpy(array).float()."
    if any(isinstance(value, list) for value in values):
        return (
            "Give a tensor, or a tuple of several: a list is one argument, as detection models "
            "take it."
        )
    if not any(True for _ in inputs.tensors()):
        kinds = ", ".join(dict.fromkeys(type(value).__name__ for value in values))
        return f"Give tensors, such as torch.randn(1, 3, 224, 224): these are {kinds}."
    return ""


def misfit(model: Callable[..., Any], inputs: Inputs, error: BaseException) -> str:
    """Return what to change about the inputs of a model that raised, "" where they may well fit.

    They do not where an operator took no input, or none of their type, or an attribute of theirs
    was looked for.
    """
    values = [*inputs.args, *inputs.kwargs.values()]
    if isinstance(error, AttributeError):
        # A model may leave all its inputs out of its signature, and need them.
        return unfit(inputs) if any(error.obj is value for value in values or [None]) else ""
    if not by_operator(error):
        return ""
    if not values or isinstance(error, TypeError):
        return unfit(inputs)
    dtypes = {tensor.dtype for _, tensor in inputs.tensors()}
    if not _types_differ(error, dtypes):
        return ""
    module = module_of(model)
    parameters = () if module is None else members.parameters(module)
    input_types, parameter_types = _names(dtypes), _names({p.dtype for p in parameters})
    weights = f" and its parameters {parameter_types}" if parameter_types else ""
    return (
        f"Convert the inputs to the type that the model takes: they are {input_types}{weights} "
        "(layers of token ids take int64)."
    )


def _types_differ(error: BaseException, input_types: set[torch.dtype]) -> bool:
    """Whether the innermost layer that raised was given one of these types, and takes another."""
    calls = [
        frame.f_locals
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code is torch_private.module_call.__code__  # each call passes here
    ]
    if not calls:
        return False
    layer = calls[-1]["self"]
    given_types = {tensor.dtype for tensor in tensors_in((calls[-1]["args"], calls[-1]["kwargs"]))}
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        return any(dtype.is_floating_point for dtype in given_types & input_types)
    weights = {parameter.dtype for parameter in layer.parameters(recurse=False)}
    return bool(weights) and weights.isdisjoint(given_types) and input_types.issuperset(given_types)


def written(call: Callable[..., Any]) -> str:
    """Return how a model is called, as `forward(x, mask=None)`."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return "forward(…)"
    plain = [
        parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()
    ]
    signature = signature.replace(parameters=plain, return_annotation=signature.empty)
    text = str(signature)
    if len(text) > LONGEST_SIGNATURE:
        text = f"({', '.join(signature.parameters)})"
    name = getattr(call, "__name__", None)
    return f"{name if isinstance(name, str) else 'forward'}{text}"


def _called(model: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return whose signature a call must fit; None where something may change the call before."""
    if not isinstance(model, nn.Module):
        return model
    own_call = type(model).__call__ is not nn.Module.__call__
    hooks = vars(model).get("_forward_pre_hooks") or torch_private.hooks_of_all
    return None if own_call or hooks else model.forward


def _signature(call: Callable[..., Any]) -> inspect.Signature | None:
    try:
        # Of what wraps the function: a decorator may take other arguments than the function.
        return inspect.signature(call, follow_wrapped=False)
    except Exception:  # noqa: BLE001 - an object may answer, and raise, anything when asked
        return None


def _nearest(signature: inspect.Signature, inputs: Inputs) -> str:
    """Return the parameter that a misspelt name is nearest to."""
    for name in inputs.kwargs:
        if name not in signature.parameters:
            near = similar(name, signature.parameters, limit=1, cutoff=0.5)
            if near:
                return f"Did you mean {near[0]} in place of {name}?"
    return ""


def _names(dtypes: set[torch.dtype]) -> str:
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


def with_batch(inputs: Inputs, batch: int) -> Inputs:
    """Return inputs whose tensors have the leading dimension `batch`, by repeating their examples.

    Scalars stay as they are beside others.

    Raises:
        InputError: `input-batch`: the leading dimensions differ, so which is the batch is unknown,
            or there is none.
    """
    sizes = {name: tensor.shape[0] for name, tensor in inputs.tensors() if tensor.dim()}
    if len(set(sizes.values())) != 1:
        differ = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise InputError(
            f"--batch {batch} cannot be applied to the factory's inputs.",
            id="input-batch",
            cause=f"Their leading dimensions differ: {differ}."
            if sizes
            else "None is a tensor with a dimension.",
            remedy=(not sizes and unfit(inputs))
            or "Give every shape with --input, or let the factory return inputs of that batch.",
        )

    def repeat(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dim() or tensor.shape[0] in (0, batch):
            return tensor
        times = -(-batch // tensor.shape[0])
        repeated = torch.cat([tensor.detach()] * times)[:batch] if times > 1 else tensor[:batch]
        return repeated.contiguous()

    return inputs.map(repeat)


def with_length(inputs: Inputs, length: int) -> Inputs:
    """Return inputs whose sequences have `length`, by repeating or cutting them.

    Sequences are the second dimension of token inputs (integers, batch × length) and of what is as
    long beside them, as masks are; without tokens that of batch × length × features.

    Raises:
        InputError: `input-length`: nothing looks like a sequence, or lengths differ.
    """
    tensors = [tensor for _, tensor in inputs.tensors()]
    tokens = {t.shape[1] for t in tensors if t.dim() == 2 and not t.is_floating_point()}
    lengths = tokens or {t.shape[1] for t in tensors if t.dim() == 3}
    if len(lengths) != 1:
        lengths_text = ", ".join(map(str, sorted(lengths)))
        raise InputError(
            f"--seq-len {length} cannot be applied to the inputs.",
            id="input-length",
            cause=f"Their sequences have the lengths {lengths_text}."
            if lengths_text
            else "None is a sequence.",
            remedy="Give every shape with --input and leave --seq-len out.",
        )
    current_length = lengths.pop()

    def resized(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() < 2 or tensor.shape[1] != current_length or current_length in (0, length):
            return tensor
        times = -(-length // current_length)
        return torch.cat([tensor.detach()] * times, dim=1)[:, :length].contiguous()

    return inputs.map(resized)
