"""Watch a program that generates: `with tg.watch_generation(model) as watch:`."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from torchgauge.errors import InputError
from torchgauge.forks import Owner
from torchgauge.measure.generation.call_watch import CallWatch
from torchgauge.measure.generation.watch_record import watch_record
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.recording import recording as other_profilers
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.generation import Generation
from torchgauge.records.record import MeasurementWarning
from torchgauge.signals import run_all
from torchgauge.turn import Turn

RUNNING = "a watch of generation without a record yet"


class GenerationWatch:
    """The context manager of `tg.watch_generation`; after the block it has the record of the calls.

    What was seen before an exception or Ctrl-C ends the block is kept.
    """

    def __init__(self, model: Any, *, assistant: Any = None) -> None:
        self._watch = CallWatch(model, assistant)
        self._turn = Turn(timeline=True)
        self._record: Generation | None = None
        self._owner = Owner()

    def __enter__(self) -> GenerationWatch:
        """Begin to watch, once no other thread measures. Raises as `Turn.take`."""
        self._turn.take()
        self._owner = Owner()
        try:
            self._watch.__enter__()
        except BaseException:  # Ctrl-C too: the turn must not stay taken
            self._turn.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        """Put the model back as it was, then make the record.

        The first Ctrl-C meanwhile is raised once that is done. Does nothing in a forked process.
        """
        if self._owner.in_fork:
            return False
        try:
            with Interrupts() as interrupts:
                self._watch.__exit__(kind, error, trace)
                self._record = watch_record(
                    self._watch,
                    interrupted=isinstance(error, KeyboardInterrupt),
                    slowing=other_profilers.slowing(),
                )
        finally:  # of the model again, since a signal may have been faster
            run_all([lambda: self._watch.__exit__(kind, error, trace), self._turn.end])
        if interrupts.noted and error is None:
            raise KeyboardInterrupt
        return False

    @property
    def calls(self) -> tuple[GenerationCall, ...]:
        """The calls in order; inside the block those so far, for which it waits for a GPU."""
        return self._watch.calls

    @property
    def record(self) -> Generation:
        """The record of the calls. Raises InputError `watch-running` inside the block."""
        if self._record is None:
            raise InputError(
                "The watch of generation has no record yet.",
                id="watch-running",
                cause="It is made when the block ends.",
                remedy="Read it after the `with` block; `calls` has the calls so far.",
            )
        return self._record

    @property
    def warnings(self) -> tuple[MeasurementWarning, ...]:
        """What the reader must know."""
        return self.record.all_warnings

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON and return the path."""
        return self.record.save(path)

    def __str__(self) -> str:
        return RUNNING if self._record is None else str(self._record)

    def __repr__(self) -> str:
        return f"<GenerationWatch: {RUNNING if self._record is None else repr(self._record)}>"

    def _repr_html_(self) -> str | None:
        return None if self._record is None else self._record._repr_html_()
