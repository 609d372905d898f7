"""Gives the inputs a factory returned another batch size."""

from __future__ import annotations

import torch

from torchgauge.errors import InputError
from torchgauge.target.inputs import Inputs


def with_batch(inputs: Inputs, batch: int) -> Inputs:
    """Return inputs whose tensors have the leading dimension `batch`, by repeating their examples.

    Scalars stay as they are.

    Raises:
        InputError: `input-batch`: the leading dimensions differ, so which is the batch is unknown.
    """
    sizes = {name: tensor.shape[0] for name, tensor in inputs.tensors() if tensor.dim()}
    if len(set(sizes.values())) > 1:
        raise InputError(
            f"--batch {batch} cannot be applied to the factory's inputs.",
            id="input-batch",
            cause="Their leading dimensions differ: "
            + ", ".join(f"{name} has {size}" for name, size in sizes.items())
            + ".",
            remedy="Say every shape with --input, or let the factory return inputs of that batch.",
        )

    def repeat(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dim() or tensor.shape[0] in (0, batch):
            return tensor
        times = -(-batch // tensor.shape[0])
        repeated = torch.cat([tensor.detach()] * times)[:batch] if times > 1 else tensor[:batch]
        return repeated.contiguous()

    return inputs.map(repeat)
