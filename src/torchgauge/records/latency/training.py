"""How long a training step takes, phase by phase."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import How, Record


class TrainingPhase(Record, frozen=True, kw_only=True):
    """One phase of a training step: its `share` of the step, and the seconds that this comes to."""

    name: str
    seconds: float
    share: float


class TrainingTime(Record, frozen=True, kw_only=True):
    """The phases of a training step, in the order in which they run; they add up to the step.

    `step` is the median of the whole step in seconds, measured as one. A phase's share is the mean,
    over the same steps, of its fraction of the step that it was timed in; its seconds are that
    share of `step`. (Medians of the phases, with their intervals, are the latency's `stages`; they
    come from different steps and need not add up.) On a GPU both are the device's own time between
    events (`clock` "device"), because waiting for the GPU after each phase would slow the step
    down; else the host's. `optimizer` is the optimizer's name; `autocast` the dtype of mixed
    precision, "" without; `scaled` says whether gradients were scaled.
    """

    step: float
    phases: tuple[TrainingPhase, ...]
    clock: Literal["host", "device"]
    optimizer: str
    autocast: str = ""
    scaled: bool = False
    how: How = "measured"

    @property
    def outside(self) -> float:
        """The share of the step that no phase explains."""
        return 1.0 - sum(phase.share for phase in self.phases)

    def phase(self, name: str) -> float:
        """Return the seconds of "zero_grad", "forward", "loss", "backward" or "optimizer"."""
        return next(phase.seconds for phase in self.phases if phase.name == name)
