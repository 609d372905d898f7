"""The options of a trainer's callback, and what it says of the training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Protocol

from torch import nn

from torchgauge.errors import InputError
from torchgauge.measure.training.batch_shapes import Count
from torchgauge.records.headline.figure import Unit
from torchgauge.records.timeline.training_run import Trainer


class StepMonitor(Protocol):
    """A monitor of the process, which raises nothing."""

    def add(self, series: str, value: float, unit: Unit = "s") -> None:
        """Add a value to a series."""


@dataclasses.dataclass(frozen=True)
class GaugeOptions:
    """What a user requests of a callback.

    Attributes:
        window: Steps to record under the profiler; 0: none.
        after: The step after which the window begins.
        save: Where the record is written at the end of the training.
        samples: Returns the samples of a batch; None: the leading dimension of its tensors.
        tokens: Returns the tokens of a batch; None: the elements of its `input_ids`.
        monitor: Gets the rated steps as series.
    """

    window: int = 0
    after: int = 10
    save: Path | None = None
    samples: Count | None = None
    tokens: Count | None = None
    monitor: StepMonitor | None = None

    def __post_init__(self) -> None:
        for name in ("window", "after"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise InputError(
                    f"{name} is a number of steps, not {value!r}.",
                    id="option-invalid",
                    remedy="For example window=5, after=10.",
                )


@dataclasses.dataclass(frozen=True)
class Job:
    """What is trained, and how.

    Attributes:
        trainer: What runs the steps.
        model: What a batch goes through.
        method: The model's method that is called with a batch.
        dtype: The dtype that autocast gives products; empty: that of the operands.
        processes: Processes of the job, each with batches of its own or sharing them with those
            among which the model is divided; None where other divisions are possible.
        uncountable: Why FLOPs cannot be counted; empty where they can.
    """

    trainer: Trainer
    model: nn.Module
    method: str = "__call__"
    dtype: str = ""
    processes: int | None = 1
    uncountable: str = ""
