"""The one call that every probe measures: a forward pass, or a whole training step."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torchgauge.errors import TorchgaugeError
from torchgauge.measure.forward import translated
from torchgauge.target import hygiene
from torchgauge.target.placement import Placement
from torchgauge.target.training import Training, TrainingStep

Step = Callable[[], Any]


@contextlib.contextmanager
def prepared(placement: Placement, train: Training | None = None) -> Iterator[Step]:
    """Yield the step as a call without arguments, in the right modes; put all back afterwards.

    Inference runs in evaluation mode under torch.inference_mode; training on parameters that are
    restored. What the step raises is a MeasurementError that names it (see `forward`).
    """
    modes = hygiene.evaluation if train is None else hygiene.training
    inputs, where = placement.inputs, placement.device
    call: Step = functools.partial(placement.model, *inputs.args, **inputs.kwargs)
    what = "The model's forward"
    with contextlib.ExitStack() as stack:
        stack.enter_context(modes(placement.model))
        if train is not None:
            call, what = TrainingStep(placement.model, inputs, train), "The training step"
        if placement.method == "autocast":
            call = _entering(placement, call)
        else:
            stack.enter_context(placement.arithmetic())
        yield guarded(call, where, what)


def _entering(placement: Placement, call: Step) -> Step:
    """Enter autocast in every step, as a training loop does: it keeps cast weights until left."""

    def step() -> Any:
        with placement.arithmetic():
            return call()

    return step


def guarded(
    call: Callable[..., Any], device: str, what: str = "The model's forward"
) -> Callable[..., Any]:
    """Return `call` with what it raises translated; a try costs a call that succeeds nothing."""

    def step(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except TorchgaugeError:
            raise
        except Exception as error:
            raise translated(error, device, what) from error

    return step
