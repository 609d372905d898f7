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
from torchgauge.measure.training.batch_shapes import Count
from torchgauge.measure.training.gauge import GaugeOptions, Job, TrainingGauge
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
    """

    def __init__(
        self,
        *,
        window: int = 0,
        after: int = 10,
        save: str | Path | None = None,
        samples: Count | None = None,
        tokens: Count | None = None,
    ) -> None:
        path = None if save is None else Path(save).absolute()
        self.options = GaugeOptions(window, after, path, samples, tokens)
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
    def called(self, inputs: Inputs) -> None:
        """Take note of a call of the model."""
        if self.gauge is not None and threading.get_ident() == self._thread:
            self.gauge.called(inputs)
