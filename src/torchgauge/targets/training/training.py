"""Training steps: how the loss is made, which optimizer steps, and the step itself."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

from torchgauge.errors import InputError
from torchgauge.targets.deferred import finished
from torchgauge.targets.inputs.inputs import Inputs

if TYPE_CHECKING:
    import torch

Phase = Literal["zero_grad", "forward", "loss", "backward", "optimizer", "end"]

UNDETACHED = "Detach nothing; gradients that the model takes itself need create_graph=True."
_EXAMPLE = (
    "train=tg.Training(loss=lambda outputs, inputs: outputs.square().mean(), "
    "optimizer=lambda params: torch.optim.AdamW(params, lr=1e-4))"
)


@dataclasses.dataclass(frozen=True)
class Training:
    """How the model is trained.

    Attributes:
        loss: `loss(outputs, inputs)` returns a scalar tensor; `inputs` is what the call takes: the
            one argument, the tuple of positional ones, the mapping of keywords, or `tg.Inputs` for
            a mix.
        optimizer: `optimizer(params)` returns a torch.optim.Optimizer over the trainable
            parameters; it is made anew for every measurement, so the caller's own optimizer state
            stays untouched.
        scaler: For mixed precision a `torch.amp.GradScaler`, of which a copy is used.
    """

    loss: Callable[[Any, Any], torch.Tensor]
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
    scaler: torch.amp.GradScaler | None = None

    def __post_init__(self) -> None:
        for name in ("loss", "optimizer"):
            if not callable(getattr(self, name)):
                raise InputError(
                    f"tg.Training needs a callable `{name}`.",
                    id="training-missing",
                    cause=f"It is a {type(getattr(self, name)).__name__}.",
                    remedy=_EXAMPLE,
                )

    @staticmethod
    def resolve(train: Training | bool | None) -> Training | None:
        """Return how to train, or None for inference (`train` None or False).

        True takes the loss the model itself returns (`outputs.loss` or `outputs["loss"]`) and
        torch.optim.AdamW with its defaults; whether there is such a loss shows in the first step,
        which raises InputError `training-missing` where there is none.
        """
        if isinstance(train, Training):
            return train
        if not train:
            return None
        from torch.optim import AdamW

        return Training(loss=own_loss, optimizer=AdamW)


class TrainingStep:
    """One training step of `model`, written once for every probe that needs one.

    Calling it runs zero_grad, forward, loss, backward and optimizer step, and returns the outputs
    of the forward pass. `mark` is called with the name of each phase as it starts, and with "end".
    `autocast` makes the context of forward and loss, anew in every step, as a training loop has it:
    the cast weights that autocast keeps are gone before the backward pass.
    Raises InputError: `training-missing`, `training-needs-module`, `nothing-to-train`,
    `loss-not-scalar`.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        inputs: Inputs,
        training: Training,
        autocast: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        self.model = model
        self.inputs = inputs.leaves()
        self.loss = training.loss
        self.parameters = _trainable(model)
        self.optimizer = training.optimizer(self.parameters)
        self.scaler = copy.deepcopy(training.scaler)
        self.autocast = autocast
        self._argument = self.inputs.as_given()

    def __call__(self, mark: Callable[[Phase], None] = lambda _: None) -> Any:
        """Run the step and return the outputs of its forward pass."""
        mark("zero_grad")
        self.optimizer.zero_grad(set_to_none=True)
        mark("forward")
        with self.autocast():
            outputs = finished(self.model(*self.inputs.args, **self.inputs.kwargs))
            mark("loss")
            loss = _checked(self.loss(outputs, self._argument))
        mark("backward")
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]
        del loss
        mark("optimizer")
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        mark("end")
        return outputs


def _trainable(model: Callable[..., Any]) -> list[torch.nn.Parameter]:
    from torch.nn import Module

    if not isinstance(model, Module):
        raise InputError(
            "Only a torch.nn.Module can be trained.",
            id="training-needs-module",
            cause=f"The target is a {type(model).__name__}, whose parameters cannot be listed.",
            remedy="Pass the module itself, or measure inference (train=None).",
        )
    return trained_parameters(model, ", or measure inference (train=None)")


def trained_parameters(model: torch.nn.Module, other_remedy: str = "") -> list[torch.nn.Parameter]:
    """Return what a training step changes. Raises InputError `nothing-to-train`."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise InputError(
            "The model has no parameter to train.",
            id="nothing-to-train",
            cause="No parameter has requires_grad set.",
            remedy=f"Call model.requires_grad_(True){other_remedy}.",
        )
    return parameters


def own_loss(outputs: Any, _: Any) -> torch.Tensor:
    """Return the loss that the model made itself; raises InputError `training-missing`."""
    loss = getattr(outputs, "loss", None)
    if loss is None and isinstance(outputs, Mapping):
        loss = outputs.get("loss")
    if loss is None:
        raise InputError(
            "train=True needs a model that returns its own loss, and this one returned none.",
            id="training-missing",
            cause=f"Its output ({type(outputs).__name__}) has no `loss`.",
            remedy=f"Say how to train: {_EXAMPLE} (on the command line: --loss mean, or "
            "--loss file.py:function); a Hugging Face model needs `labels` as input.",
        )
    return loss  # type: ignore[no-any-return]


def _checked(loss: Any) -> torch.Tensor:
    from torch import Tensor

    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad:
        return loss
    description, remedy = f"a {type(loss).__name__}", "Return a number from loss(outputs, inputs)."
    if isinstance(loss, Tensor):
        description = f"a tensor of shape {tuple(loss.shape)}"
        if not loss.requires_grad:
            description += " that does not depend on a trainable parameter"
            remedy = UNDETACHED
    raise InputError(
        "The loss cannot be differentiated.",
        id="loss-not-scalar",
        cause=f"It is {description}; backward needs a scalar tensor that requires grad.",
        remedy=remedy,
    )
