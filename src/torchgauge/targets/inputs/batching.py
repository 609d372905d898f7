"""Changes the batch size or the sequence length of inputs."""

from __future__ import annotations

import torch

from torchgauge.errors import InputError
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.inputs.misfits import unfit


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
