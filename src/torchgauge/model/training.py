"""How long a training step takes, phase by phase."""

from __future__ import annotations

from typing import Literal

from torchgauge.model.latency import Stage
from torchgauge.model.record import How, Record


class TrainingTime(Record, frozen=True, kw_only=True):
    """The phases of a training step: seconds each, in the order in which they run.

    `step` is the median of the whole step, measured as one; `phases` are timed within the same
    steps. On a GPU they are the device's own time between events (`clock` "device"), because
    waiting for the GPU after each phase would slow the step down; else the host's. `optimizer` is
    the optimizer's name; `autocast` the dtype of mixed precision, "" without; `scaled` says
    whether gradients were scaled.
    """

    step: float
    phases: tuple[Stage, ...]
    clock: Literal["host", "device"]
    optimizer: str
    autocast: str = ""
    scaled: bool = False
    how: How = "measured"

    @property
    def total(self) -> float:
        """The sum of the phases' medians, in seconds; the whole step's is `step`."""
        return sum(phase.median for phase in self.phases)

    def phase(self, name: str) -> float:
        """Return the median of "zero_grad", "forward", "loss", "backward" or "optimizer"."""
        return next(phase.median for phase in self.phases if phase.name == name)
