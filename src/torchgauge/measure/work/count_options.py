"""Options of a count beside its target; without torch."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from torchgauge.analyze.memory.training_memory import OPTIMIZER, optimizer_named
from torchgauge.records.work.roofline import Roofs

if TYPE_CHECKING:
    from torchgauge.targets.training.training import Training


@dataclasses.dataclass(frozen=True)
class CountOptions:
    """What to count: the backward pass too, and a training step's memory.

    Attributes:
        backward: Whether the backward pass is counted, and the memory of a training step.
        optimizer: Whose states and temporaries are part of that memory.
        train: Its loss; None takes the one that the model returns, else the mean of its outputs.
        autocast: "bf16" or "fp16" where the step runs under autocast.
        on: Devices for which time and memory are estimated.
        fall_back: Whether to count on the CPU where the request's device fails.

    Raises InputError `optimizer-unknown`.
    """

    backward: bool = False
    optimizer: str = OPTIMIZER
    train: Training | None = None
    autocast: str | None = None
    on: tuple[Roofs, ...] = ()
    fall_back: bool = False

    @property
    def flash(self) -> bool:
        """Whether all devices have flash attention: those whose products know bfloat16."""
        return all("bfloat16" in roofs.peaks for roofs in self.on)

    def __post_init__(self) -> None:
        optimizer_named(self.optimizer)
