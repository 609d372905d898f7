"""The one call that every probe measures: a forward pass, or a whole training step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torchgauge.measure.forward import running
from torchgauge.target import hygiene
from torchgauge.target.placement import Placement
from torchgauge.target.training import Training, TrainingStep

Step = Callable[[], Any]


@contextlib.contextmanager
def prepared(placement: Placement, train: Training | None = None) -> Iterator[Step]:
    """Yield the step as a call without arguments, in the right modes; put all back afterwards.

    Inference runs in evaluation mode under torch.inference_mode; training on parameters that are
    restored. What the user's code raises inside the block becomes a MeasurementError.
    """
    modes = hygiene.evaluation if train is None else hygiene.training
    with modes(placement.model), placement.arithmetic(), running(placement.device):
        if train is not None:
            yield TrainingStep(placement.model, placement.inputs, train)
            return
        model, args, kwargs = placement.model, placement.inputs.args, dict(placement.inputs.kwargs)
        yield lambda: model(*args, **kwargs)
