"""The timeline of the user's own loop: `with tg.timeline(model) as run:`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from torch import nn

from torchgauge.errors import InputError
from torchgauge.forks import Owner
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.loop import mark
from torchgauge.measure.loop.loop_modules import LoopModules
from torchgauge.measure.loop.loop_record import loop_record
from torchgauge.measure.loop.loop_steps import LoopSteps
from torchgauge.measure.loop.out_of_memory import OutOfMemoryWatch
from torchgauge.measure.loop.schedule import Schedule
from torchgauge.measure.loop.step_ends import StepEnds
from torchgauge.measure.recording import capture_limit as capture
from torchgauge.measure.recording.recording import refuse_inside_another, slowing
from torchgauge.measure.timeline.stamps import Stamps
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Captured, Loop
from torchgauge.records.timeline.table import Table
from torchgauge.records.timeline.tree import Tree
from torchgauge.signals import HeldBack, run_all, uninterrupted
from torchgauge.temporary import temporary_folder
from torchgauge.turn import Turn

RUNNING = "a timeline without a record yet"

_active: Timeline | None = None


class Timeline:
    """The context manager of `tg.timeline`; after the block it has the record of the loop.

    Steps end at the optimizer's steps, in inference at the model's calls, or where `step` is
    called. What was recorded before an exception or Ctrl-C ends the loop is kept.
    """

    def __init__(
        self,
        model: nn.Module | Iterable[nn.Module] | None = None,
        *,
        schedule: Schedule | None = None,
        memory_budget: int | None = None,
        all_threads: bool = False,
        on_oom: str | Path | None = None,
        watch_memory: bool = False,
    ) -> None:
        self._roots = _roots(model)
        self._schedule = schedule or Schedule()
        self._watch_memory = watch_memory
        self._budget = _budget(memory_budget)
        self._all_threads = all_threads
        self._on_oom = None if on_oom is None else Path(on_oom).absolute()
        self.written: tuple[Path, ...] = ()
        self._turn = Turn(timeline=True)
        self._record: Loop | None = None
        self._open = contextlib.ExitStack()
        self._owner = Owner()

    def __enter__(self) -> Timeline:
        """Begin to watch the loop, once no other thread measures.

        Raises InputError `timeline-active` within another timeline, of this or another thread,
        MeasurementError `profiler-active` where another profiler records.
        """
        self._turn.take()
        try:
            self._claim()
        except BaseException:  # Ctrl-C too: the turn must not stay taken
            self._turn.end()
            raise
        self._owner = Owner()
        try:
            with HeldBack():
                self._begin()
        except BaseException:  # also of a signal that came meanwhile: torch must be as it was
            uninterrupted(self._leave)
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Put torch back as it was, then read what was recorded.

        The first Ctrl-C meanwhile is raised once that is done. Does nothing in a forked process.
        """
        if self._owner.in_fork:
            return
        try:
            self._finish(error)
        finally:  # again, since a signal may have been faster
            uninterrupted(self._leave)

    def _finish(self, error: BaseException | None) -> None:
        with Interrupts() as interrupts:
            slowing_names = slowing()
            self._oom.finish(error)
            try:
                with HeldBack():
                    run_all([self._steps.close, self._ends.close])
                record = loop_record(
                    self._steps,
                    self._ends,
                    modules=self._modules,
                    requested_steps=self._schedule.requested_steps,
                    budget=self._budget,
                    interrupted=isinstance(error, KeyboardInterrupt),
                    slowing=slowing_names,
                )
            finally:
                uninterrupted(self._leave)
            self._record = msgspec.structs.replace(
                record, interrupted=record.interrupted or interrupts.noted
            )
            if self._oom.noted:
                self._record, self.written = self._oom.finished(self._record)
        if interrupts.noted and error is None:
            raise KeyboardInterrupt

    def step(self) -> None:
        """End a step of the loop; who calls it once decides where all steps end."""
        if _active is self:
            self._ends.explicit()

    @property
    def record(self) -> Loop:
        """The record of the loop. Raises InputError `timeline-running` inside the block."""
        if self._record is None:
            raise InputError(
                "The timeline has no record yet.",
                id="timeline-running",
                cause="It is made when the block ends.",
                remedy="Read it after the `with` block.",
            )
        return self._record

    @property
    def tree(self) -> Tree | None:
        """Where a typical recorded step went; None where no whole step was recorded."""
        return self.record.tree

    @property
    def steps(self) -> tuple[float, ...]:
        """The durations of all steps in seconds."""
        return self.record.steps

    @property
    def captured(self) -> Captured:
        """How many steps were recorded, of how many asked for, and why not all."""
        return self.record.captured

    @property
    def warnings(self) -> tuple[MeasurementWarning, ...]:
        """What the reader must know."""
        return self.record.all_warnings

    def table(self, kind: Literal["layers", "operators"] = "layers") -> Table:
        """Return the nodes of a step as a flat table."""
        return self.record.table(kind)

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON and return the path, with the rank in it, if any."""
        return self.record.save(path)

    def __str__(self) -> str:
        return RUNNING if self._record is None else str(self._record)

    def __repr__(self) -> str:
        return f"<Timeline: {RUNNING if self._record is None else repr(self._record)}>"

    def _repr_html_(self) -> str | None:
        return None if self._record is None else self._record._repr_html_()

    def _claim(self) -> None:
        global _active
        refuse_inside_another("A timeline cannot be recorded inside another recording.")
        if _active is not None:  # of this thread: those of others have the turn
            raise InputError(
                "A timeline is active already.",
                id="timeline-active",
                cause="This process has entered tg.timeline, or runs under "
                "`torchgauge run script.py`.",
                remedy="Use one timeline, around the whole loop; tg.mark names parts of it.",
            )
        _active = self

    def _begin(self) -> None:
        folder = self._open.enter_context(temporary_folder())
        self._modules = LoopModules(self._roots)
        stamps = Stamps(self._modules.target, self._modules)
        self._steps = LoopSteps(
            self._schedule,
            self._budget,
            folder,
            self._modules,
            stamps,
            lambda: self._ends.outermost(),
            all_threads=self._all_threads,
            watch_memory=self._watch_memory,
        )
        self._oom = OutOfMemoryWatch(self._on_oom, self._steps, self._modules, self._budget)
        if self._on_oom is not None:
            self._open.enter_context(self._oom.watching())
        steps = self._steps
        self._ends = StepEnds(self._roots, steps.ended, steps.restart, steps.clock.calls)
        steps.clock.backward_ended = self._ends.backward_ended
        self._open.callback(self._ends.close)
        for watcher in self._steps.watchers:
            self._open.enter_context(watcher.watching())
        for root in self._roots:
            self._steps.clock.calls(root)
        self._ends.open()
        self._steps.begin()

    def _leave(self) -> None:
        global _active
        try:
            self._open.close()
        finally:
            if _active is self:
                _active = None
            self._turn.end()


def _forget_in_child() -> None:
    """Let a forked process (a data loader's worker) neither count steps nor record."""
    global _active
    if _active is not None:
        _active._ends.active = False  # noqa: SLF001 - the same file
        _active._steps.clock.stop()  # noqa: SLF001
        if (memory := _active._steps.memory) is not None:  # noqa: SLF001
            memory.on = False
        _active = None
        mark.name_with(None)


os.register_at_fork(after_in_child=_forget_in_child)


def _roots(model: Any) -> tuple[nn.Module, ...]:
    if model is None:
        return ()
    if isinstance(model, nn.Module):
        return (model,)
    modules = tuple(model) if isinstance(model, Iterable) else (model,)
    for module in modules:
        if not isinstance(module, nn.Module):
            raise InputError(
                f"A {type(module).__name__} is not a module.",
                id="not-a-module",
                cause="A timeline records torch.nn.Modules: one, several, or those that it finds.",
                remedy="Give the model itself, or nothing.",
            )
    return modules


def _budget(requested: int | None) -> int:
    if requested is None:
        return capture.budget()
    if type(requested) is not int or requested <= 0:
        raise InputError(
            f"A memory budget is a positive number of bytes, not {requested!r}.",
            id="budget-invalid",
            remedy="For example memory_budget=2**30.",
        )
    return requested
