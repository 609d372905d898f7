"""The one call that every probe measures: a forward pass, or a whole training step."""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from torchgauge.errors import MeasurementError
from torchgauge.forks import PASSING, Owner
from torchgauge.measure.forward import running, translated
from torchgauge.measure.recording.own_threads import OwnThreads
from torchgauge.targets import hygiene
from torchgauge.targets.deferred import Finishing
from torchgauge.targets.hygiene import Restoration
from torchgauge.targets.hygiene.input_state import InputState
from torchgauge.targets.inputs.misfits import misfit
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Phase, Training, TrainingStep


class Step:
    """`step()` runs the call once; `step(mark)` also says when each of its phases starts.

    What the user's code raises becomes a ModelError that names the running `subject`.
    `saved_state` is what had to be copied in order to be put back; `optimizer` is a training step's
    own; `threads` tells the step's threads from others. `inputs_used`: a call has run since the
    inputs were put back.
    """

    def __init__(
        self, placement: Placement, train: Training | None, saved_state: Restoration
    ) -> None:
        self.subject = "The model's forward"
        self.device = placement.device
        self.saved_state = saved_state
        self.threads = OwnThreads()
        self.optimizer: torch.optim.Optimizer | None = None
        self._finishing = Finishing()
        inputs = placement.inputs
        self._inputs: InputState | None = InputState(inputs, saved_state)
        self.inputs_used = False
        self._misfit = functools.partial(misfit, placement.model, inputs)
        self._owner = Owner()
        _steps.add(self)
        self._call: Callable[..., Any]
        if train is None:
            self._call = functools.partial(placement.model, *inputs.args, **inputs.kwargs)
            return
        self.subject = "The training step"
        autocast = placement.arithmetic if _autocasts(placement, train) else contextlib.nullcontext
        with running(self.device, "Making the optimizer"):
            training = TrainingStep(placement.model, inputs, train, autocast)
        self._call, self.optimizer = training, training.optimizer

    def ready(self) -> None:
        """Put back what earlier calls changed of the inputs; what is timed begins after this.

        A call does so itself where nobody did before. Raises InputError `inputs-used-up`.
        """
        inputs = self._inputs
        if inputs is None or not self.inputs_used:
            return
        if inputs.changes is None:
            inputs.look()
            if not inputs.changes:
                self._inputs = None
                return
        inputs.put_back()
        self.inputs_used = False

    def __call__(self, mark: Callable[[Phase], None] | None = None) -> Any:
        """Run the step and return the outputs of its forward pass."""
        if self._inputs is not None:
            self.ready()
            self.inputs_used = True
        try:
            return self._finishing(self._call()) if mark is None else self._marked(mark)
        except PASSING:
            raise
        except BaseException as error:  # the user's code may raise anything
            if self._owner.in_fork:
                raise
            raise translated(error, self.device, self.subject, self._misfit) from error

    def _marked(self, mark: Callable[[Phase], None]) -> Any:
        if self.optimizer is not None:
            return self._call(mark)
        mark("forward")
        outputs = self._finishing(self._call())
        mark("end")
        return outputs


_steps: weakref.WeakSet[Step] = weakref.WeakSet()


def _end_in_child() -> None:
    """Let a process that a step forked run no other: each would fork once more."""
    for step in list(_steps):
        step._call = _ended  # noqa: SLF001 - the same file


def _ended(*_: object) -> NoReturn:
    raise SystemExit(0)


os.register_at_fork(after_in_child=_end_in_child)


def without_values() -> MeasurementError:
    """Return the error that a model computes nothing."""
    return MeasurementError(
        "A model on the meta device, or of fake tensors, cannot be run.",
        id="meta-model",
        cause="Its tensors have shapes and no values.",
        remedy="Load it on cpu or cuda; tg.measure_size and tg.count_cost take it as it is.",
    )


@contextlib.contextmanager
def prepared(placement: Placement, train: Training | None = None) -> Iterator[Step]:
    """Yield the step in the right modes and precision; put all back afterwards.

    Inference runs in evaluation mode under torch.inference_mode; training on parameters that are
    restored, its autocast entered by the step itself. Raises MeasurementError `meta-model` where
    nothing would be computed, and what making a TrainingStep raises.
    """
    if not placement.computes:
        raise without_values()
    modes = hygiene.evaluation if train is None else hygiene.training
    inside = _autocasts(placement, train)
    arithmetic = contextlib.nullcontext() if inside else placement.arithmetic()
    inputs = placement.inputs, placement.target.inputs
    owner = Owner()
    with modes(placement.model, *inputs) as saved_state, arithmetic:
        step = Step(placement, train, saved_state)
        yield step
        step.ready()
    owner.end_fork()


def _autocasts(placement: Placement, train: Training | None) -> bool:
    return train is not None and placement.method == "autocast"


def guarded(
    call: Callable[..., Any], device: str, subject: str = "The model's forward"
) -> Callable[..., Any]:
    """Return `call` with what it raises translated; a try costs a call that succeeds nothing."""
    owner = Owner()

    def step(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except PASSING:
            raise
        except BaseException as error:  # the user's code may raise anything
            if owner.in_fork:
                raise
            raise translated(error, device, subject) from error

    return step
