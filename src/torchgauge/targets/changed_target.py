"""A target with lines of code applied to it: the very lines that a user is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch

from torchgauge.errors import MeasurementError, text_of
from torchgauge.targets.builds.source import Source
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Training


@dataclasses.dataclass(frozen=True)
class Changed(Source):
    """A source with lines to run on what it opens, once the process is set up as its parent was.

    What was opened must be a fresh process's own.
    """

    code: tuple[str, ...] = ()


def changed(placement: Placement, code: Iterable[str]) -> Placement:
    """Return the placement after running code that may rebind `model`, `args` and `kwargs`.

    Raises MeasurementError `change-raised`.
    """
    inputs = placement.inputs
    names: dict[str, Any] = {
        "model": placement.model,
        "args": inputs.args,
        "kwargs": dict(inputs.kwargs),
    }
    for snippet in code:
        execute(snippet, names)
    return dataclasses.replace(
        placement, model=names["model"], inputs=Inputs(tuple(names["args"]), names["kwargs"])
    )


@dataclasses.dataclass(frozen=True)
class ChangedOptimizer:
    """Makes an optimizer and runs `code` on it, under the name `optimizer`."""

    make: Callable[..., torch.optim.Optimizer]
    code: tuple[str, ...]

    def __call__(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer as the code left it."""
        names: dict[str, Any] = {"optimizer": self.make(parameters)}
        for snippet in self.code:
            execute(snippet, names)
        return names["optimizer"]  # type: ignore[no-any-return]


def changed_training(train: Training | None, code: tuple[str, ...]) -> Training | None:
    """Return how to train with code applied to the optimizer."""
    if train is None or not code:
        return train
    return dataclasses.replace(train, optimizer=ChangedOptimizer(train.optimizer, code))


def execute(code: str, names: dict[str, Any]) -> None:
    """Run lines of a candidate's with the names they may rebind.

    Raises MeasurementError `change-raised`.
    """
    names["torch"] = torch
    try:
        exec(compile(code, "<advice>", "exec"), names)  # noqa: S102 - our own, and what is shown
    except Exception as error:  # the change runs the user's classes, which raise anything
        raise MeasurementError(
            "The change cannot be made to this model.",
            id="change-raised",
            cause=text_of(error),
            remedy="It is left out; the model runs as it was.",
        ) from error
