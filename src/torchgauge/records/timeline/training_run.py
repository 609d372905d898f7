"""The record of a training that a trainer ran: its steps, rates, utilization and memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from torchgauge.records.environment import Environment
from torchgauge.records.exported import Exported
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.timeline.loop import Loop, Rank, saved_by_rank
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.utilization import Utilization

SCHEMA = "torchgauge.training/1"
Trainer = Literal["transformers", "lightning", "accelerate"]


class TrainingRun(Exported, frozen=True, kw_only=True):
    """The steps of one process of a training, from one optimizer step to the next.

    Rates and times are of the `rated` steps: all but the first ones, and those of the window that
    was recorded. What a trainer does between steps (evaluation, checkpoints) is in no step.

    Attributes:
        trainer: What ran the steps.
        model: The class of the model.
        environment: Where they ran.
        program: What ran, as its user wrote it; empty where that is not known.
        rank: Which process of a distributed job this is.
        replicas: Processes that each train on batches of their own; None where that is not known.
        count: Steps of the optimizer.
        rated: The steps that rates and times are of.
        time: Seconds of the rated steps, waits for data with them.
        data_wait: Seconds in which they waited for batches.
        between: Seconds from the first step to the last that are in no step.
        durations: Seconds of each rated step, of the first 100,000.
        interval: Of the mean step; None of too few independent steps.
        micro_batches: Batches of a step, on average: more than 1 where gradients are accumulated.
        samples: Samples of the rated steps; None where the batches do not say.
        tokens: Tokens of the rated steps, padding with them; None where the batches do not say.
        utilization: Of a mean step and this process's device; None where FLOPs are not known.
        counted: The rated steps whose FLOPs are counted, which the utilization is of.
        unknown: Why the utilization is not known; empty where it is.
        memory_peak: The most bytes that were allocated on the device, on a CPU resident.
        window: The steps that were recorded on request, and where the time of one went.
    """

    schema: str = SCHEMA
    trainer: Trainer
    model: str
    environment: Environment
    program: str = ""
    rank: Rank | None = None
    replicas: int | None = 1
    count: int = 0
    rated: int = 0
    time: float = 0.0
    data_wait: float = 0.0
    between: float = 0.0
    durations: tuple[float, ...] = ()
    interval: Interval | None = None
    micro_batches: float | None = None
    samples: int | None = None
    tokens: int | None = None
    utilization: Utilization | None = None
    counted: int = 0
    unknown: str = ""
    memory_peak: int | None = None
    window: Loop | None = None
    interrupted: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def step(self) -> float | None:
        """The mean of the rated steps in seconds; None without any."""
        return self.time / self.rated if self.rated else None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of this process per second of its steps."""
        return self._per_second(self.tokens)

    @property
    def samples_per_second(self) -> float | None:
        """Samples of this process per second of its steps."""
        return self._per_second(self.samples)

    @property
    def data_wait_share(self) -> float | None:
        """The part of the steps' time in which they waited for batches."""
        return self.data_wait / self.time if self.time else None

    @property
    def tree(self) -> Tree | None:
        """Where a typical recorded step went; None where none was recorded."""
        return None if self.window is None else self.window.tree

    @property
    def all_warnings(self) -> tuple[MeasurementWarning, ...]:
        """The record's own warnings and those of the recorded window."""
        return self.warnings + (() if self.window is None else self.window.all_warnings)

    def disagreements(self) -> Iterator[tuple[str, str]]:
        """Yield the path of a field that contradicts others, and how."""
        if not 0 <= self.counted <= self.rated <= self.count:
            yield "rated", "it is not between `counted` and `count`"
        if self.time < 0 or not 0 <= self.data_wait <= self.time:
            yield "data_wait", "it is not between 0 and `time`"

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON, whole or not at all, and return the path.

        Of a distributed job each process writes its own: `run.json` becomes `run.rank0.json`.
        Raises InputError `output-unwritable`.
        """
        return super().save(saved_by_rank(path, self.rank))

    def _per_second(self, amount: int | None) -> float | None:
        return None if amount is None or not self.time else amount / self.time
