"""Training steps from the texts of --loss and --optimizer."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch

from torchgauge.device.select import resolve
from torchgauge.errors import InputError
from torchgauge.similar import did_you_mean, similar
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.loaders.building import attribute
from torchgauge.targets.loaders.python_source import imported
from torchgauge.targets.target import TargetRequest
from torchgauge.targets.training.training import UNDETACHED, Training

MEAN = "mean"


def requested_training(request: TargetRequest) -> Training | None:
    """Return how to train a target as requested, None for inference. Raises as `named_training`."""
    if not request.training:
        return None
    return named_training(
        request.loss, request.optimizer, precision=request.precision, device=resolve(request.device)
    )


def named_training(
    loss: str | None, optimizer: str | None, *, precision: str | None, device: str
) -> Training:
    """Return how to train, from the texts of --loss and --optimizer.

    Without a loss the model's own is taken (`outputs.loss`). Training in fp16 scales its
    gradients. Raises InputError `loss-unknown`, `optimizer-unknown`.
    """
    own = Training.resolve(train=True)
    assert own is not None  # noqa: S101 - True always resolves
    scaler = torch.amp.GradScaler(device.partition(":")[0]) if precision == "fp16" else None
    return Training(
        loss=own.loss if loss is None else _loss(loss),
        optimizer=own.optimizer if optimizer is None else _optimizer(optimizer),
        scaler=scaler,
    )


def _loss(text: str) -> Callable[[Any, Any], torch.Tensor]:
    if text == MEAN:
        return mean_of_outputs
    if ":" not in text:
        raise InputError(
            f"Unknown loss '{text}'.",
            id="loss-unknown",
            cause="It is neither 'mean' nor a function in a file or module.",
            remedy="Give --loss file.py:function, taking (outputs, inputs), or --loss mean.",
        )
    function_named(text)  # a mistake shows now, not after the model was built
    return NamedLoss(text)


def mean_of_outputs(outputs: Any, _inputs: Any) -> torch.Tensor:
    """Return the sum of the means of all differentiable outputs: a loss that needs no labels."""
    tensors = [tensor for tensor in tensors_in(outputs, repeated=True) if tensor.requires_grad]
    if not tensors:
        raise InputError(
            "No output of the model can be differentiated.",
            id="loss-not-scalar",
            cause="None of its tensors requires grad.",
            remedy=f"Give a loss of your own: --loss file.py:function. {UNDETACHED}",
        )
    return torch.stack([tensor.float().mean() for tensor in tensors]).sum()


@dataclasses.dataclass(frozen=True)
class NamedLoss:
    """A loss by its name, so that a fresh process can look it up for itself."""

    spec: str

    def __call__(self, outputs: Any, inputs: Any) -> torch.Tensor:
        """Call the function of that name."""
        return function_named(self.spec)(outputs, inputs)


@functools.cache
def function_named(spec: str) -> Callable[[Any, Any], torch.Tensor]:
    """Import and return a function, once in a process; raises as loading a target does."""
    module, _, name = spec.rpartition(":")
    function: Any = imported(module)
    for part in name.split("."):
        function = attribute(function, part, module)
    if not callable(function):
        raise InputError(
            f"{spec} is not a function.",
            id="loss-unknown",
            cause=f"It is a {type(function).__name__}.",
            remedy="Name a function that takes (outputs, inputs) and returns a scalar tensor.",
        )
    return function  # type: ignore[no-any-return]


def _optimizer(text: str) -> Callable[..., torch.optim.Optimizer]:
    optimizers = {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    }
    if text.lower() not in optimizers or text.lower() == "optimizer":
        raise InputError(
            f"Unknown optimizer '{text}'.",
            id="optimizer-unknown",
            cause=f"torch.optim has {', '.join(sorted(optimizers))}.",
            remedy=did_you_mean(similar(text, optimizers), "Choose one of them."),
        )
    return optimizers[text.lower()]
