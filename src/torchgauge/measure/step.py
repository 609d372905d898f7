"""The one call that every probe measures: a forward pass, or a whole training step."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchgauge.errors import TorchgaugeError
from torchgauge.measure.forward import RAISED, running, translated
from torchgauge.measure.own_threads import OwnThreads
from torchgauge.target import hygiene
from torchgauge.target.hygiene import Kept
from torchgauge.target.placement import Placement
from torchgauge.target.training import Phase, Training, TrainingStep


class Step:
    """`step()` runs the call once; `step(mark)` also says when each of its phases starts.

    What the user's code raises becomes a MeasurementError that names `what` was running. `kept` is
    what had to be copied in order to be put back; `optimizer` is a training step's own; `threads`
    tells the step's threads from others.
    """

    def __init__(self, placement: Placement, train: Training | None, kept: Kept) -> None:
        self.what = "The model's forward"
        self.device = placement.device
        self.kept = kept
        self.threads = OwnThreads()
        self.optimizer: torch.optim.Optimizer | None = None
        inputs = placement.inputs
        self._call: Callable[..., Any]
        if train is None:
            self._call = functools.partial(placement.model, *inputs.args, **inputs.kwargs)
            return
        self.what = "The training step"
        autocast = placement.arithmetic if _autocasts(placement, train) else contextlib.nullcontext
        with running(self.device, "Making the optimizer"):
            training = TrainingStep(placement.model, inputs, train, autocast)
        self._call, self.optimizer = training, training.optimizer

    def __call__(self, mark: Callable[[Phase], None] | None = None) -> Any:
        """Run the step and return the outputs of its forward pass."""
        try:
            return self._call() if mark is None else self._marked(mark)
        except TorchgaugeError:
            raise
        except RAISED as error:
            raise translated(error, self.device, self.what) from error

    def _marked(self, mark: Callable[[Phase], None]) -> Any:
        if self.optimizer is not None:
            return self._call(mark)
        mark("forward")
        outputs = self._call()
        mark("end")
        return outputs


@contextlib.contextmanager
def prepared(placement: Placement, train: Training | None = None) -> Iterator[Step]:
    """Yield the step in the right modes and precision; put all back afterwards.

    Inference runs in evaluation mode under torch.inference_mode; training on parameters that are
    restored, its autocast entered by the step itself. Raises what making a TrainingStep raises.
    """
    modes = hygiene.evaluation if train is None else hygiene.training
    inside = _autocasts(placement, train)
    arithmetic = contextlib.nullcontext() if inside else placement.arithmetic()
    inputs = placement.inputs, placement.target.inputs
    with modes(placement.model, *inputs) as kept, arithmetic:
        yield Step(placement, train, kept)


def _autocasts(placement: Placement, train: Training | None) -> bool:
    return train is not None and placement.method == "autocast"


def guarded(
    call: Callable[..., Any], device: str, what: str = "The model's forward"
) -> Callable[..., Any]:
    """Return `call` with what it raises translated; a try costs a call that succeeds nothing."""

    def step(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except TorchgaugeError:
            raise
        except RAISED as error:
            raise translated(error, device, what) from error

    return step
