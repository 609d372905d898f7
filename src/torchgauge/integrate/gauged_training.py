"""What the trainers' callbacks share: they watch one training each, and never disturb it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from torchgauge.errors import InputError
from torchgauge.forks import Owner
from torchgauge.measure.training.batch_shapes import Count, GaugeOptions, Job, StepMonitor
from torchgauge.measure.training.gauge import TrainingGauge
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.targets.inputs.inputs import Inputs

AUTOCAST = {"bf16": "bfloat16", "fp16": "float16", "16": "float16"}

_active: GaugedTraining | None = None
Watched = TypeVar("Watched", bound="GaugedTraining")
P = ParamSpec("P")


def guarded(
    hook: Callable[Concatenate[Watched, P], None],
) -> Callable[Concatenate[Watched, P], None]:
    """Let no error of a hook reach the training: the watching ends with a warning instead."""

    @functools.wraps(hook)
    def without_errors(self: Watched, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the user's training must not fail by its watcher
            self.give_up(error)

    return without_errors


class GaugedTraining:
    """Watches a training between `begin` and `end`; afterwards it has the record.

    One training of a process is watched at a time: one that did not end, as by Ctrl-C in a
    notebook, ends when the next begins, or with the process.

    Args:
        window: Steps to record under the profiler; the record then has the tree of one.
        after: The step after which the window begins.
        save: Where to write the record at the end, also after Ctrl-C.
        samples: Returns the samples of a batch; by default the tensors' leading dimension.
        tokens: Returns the tokens of a batch; by default the elements of `input_ids`.
        monitor: A monitor (`tg.monitor(name=…)`) that gets the steps as series.

    Attributes:
        record: The `TrainingRun` until now.
    """

    def __init__(
        self,
        *,
        window: int = 0,
        after: int = 10,
        save: str | Path | None = None,
        samples: Count | None = None,
        tokens: Count | None = None,
        monitor: StepMonitor | None = None,
    ) -> None:
        path = None if save is None else Path(save).absolute()
        self.options = GaugeOptions(window, after, path, samples, tokens, monitor)
        self.gauge: TrainingGauge | None = None
        self._last: TrainingGauge | None = None
        self._error: Exception | None = None
        self._open = contextlib.ExitStack()
        self._thread = 0
        self._owner = Owner()

    @property
    def record(self) -> TrainingRun:
        """The record of the training until now, also after Ctrl-C.

        Raises InputError `training-not-begun`.
        """
        if self._last is None:
            raise InputError(
                "There is no training to tell of yet.",
                id="training-not-begun",
                cause="" if self._error is None else f"Watching it failed: {self._error}",
                remedy="Give the callback to a trainer, and train.",
            )
        return self._last.record()

    def begin(self, job: Job) -> TrainingGauge:
        """Begin to watch a training; what another callback watches ends."""
        global _active
        if _active is not None:
            _active.end(interrupted=True)
        self.end(interrupted=True)
        self._thread = threading.get_ident()
        self._owner = Owner()
        self.gauge = self._last = TrainingGauge(job, self.options)
        _active = self
        atexit.register(self.end, interrupted=True)
        return self.gauge

    def enter(self, context: contextlib.AbstractContextManager[Any]) -> None:
        """Enter what lasts until the training ends."""
        self._open.enter_context(context)

    def end(self, *, interrupted: bool = False) -> None:
        """End the watching, if there is any, and write the record if a path was given."""
        global _active
        gauge, self.gauge = self.gauge, None
        atexit.unregister(self.end)
        if _active is self:
            _active = None
        self._open.close()
        if gauge is not None and not self._owner.in_fork:
            gauge.finish(interrupted=interrupted)

    def give_up(self, error: Exception) -> None:
        """Watch no more, and say so in the record."""
        self._error = error
        gauge = self.gauge or self._last
        if gauge is not None:
            gauge.failed(error)
        with contextlib.suppress(Exception):
            self.end()

    @guarded
    def fetching(self) -> None:
        """Take note that the loop wants the next batch, by which no step ends."""

    @guarded
    def fetched(self, _batch: Any, duration: int) -> None:
        """Take note of how long a batch took."""
        if self.gauge is not None:
            self.gauge.waited(duration)

    @guarded
    def exhausted(self) -> None:
        """Take note that there is no further batch, by which no step ends."""

    def restart(self) -> None:
        """Let the step begin now: what was done since the last one ended is in none."""
        if self.gauge is not None:
            self.gauge.restart()

    def pause(self) -> None:
        """Stop the clock of the step until `resume`."""
        if self.gauge is not None:
            self.gauge.pause()

    def resume(self) -> None:
        """Let the clock of the step run again."""
        if self.gauge is not None:
            self.gauge.resume()

    @guarded
    def called(self, inputs: Inputs) -> None:
        """Take note of a call of the model."""
        if self.gauge is not None and threading.get_ident() == self._thread:
            self.gauge.called(inputs)
