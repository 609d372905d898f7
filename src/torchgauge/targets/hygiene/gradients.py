"""Saves and restores which tensors require a gradient, and the gradients that they have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch
from torch.nn.parameter import is_lazy

from torchgauge.signals import run_all


class Gradients:
    """`requires_grad` of tensors, and which tensor is the `.grad` of each that has one."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._before = [(tensor, tensor.requires_grad, _gradient(tensor)) for tensor in tensors]

    def differ(self) -> bool:
        """Whether any is another than it was."""
        return any(
            tensor.requires_grad is not required or _gradient(tensor) is not gradient
            for tensor, required, gradient in self._before
        )

    def restore(self) -> None:
        """Put back what differs; raises an error after everything else has been put back."""
        run_all(partial(_restore, *saved) for saved in self._before)


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    return None if is_lazy(tensor) or not tensor.is_leaf else tensor.grad


def _restore(tensor: torch.Tensor, required: bool, gradient: torch.Tensor | None) -> None:
    if tensor.requires_grad is not required:
        if not tensor.is_leaf:  # written in place by what required one
            tensor.detach_()
        tensor.requires_grad_(required)
    if _gradient(tensor) is not gradient:
        tensor.grad = gradient
