"""The lines of a script while it runs: their time and, where asked for, the bytes they allocate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from torchgauge.measure.lines.line_memory import LineMemory
from torchgauge.measure.lines.line_trace import LineTrace
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Loop


class ScriptLines:
    """Traces a program's functions, all of its own or those of the names `functions`.

    Raises MissingExtraError where `memory` is asked for and memray is not installed.
    """

    def __init__(self, functions: Sequence[str] = (), *, memory: bool = False) -> None:
        self.trace = LineTrace(functions)
        self.memory = LineMemory() if memory else None

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace until the block ends; raises MeasurementError `lines-unavailable`."""
        recording = contextlib.nullcontext() if self.memory is None else self.memory.recording()
        with recording, self.trace.tracing():
            yield

    def added(self, record: Loop) -> Loop:
        """Return the record with the functions, and with warnings of them."""
        functions = self.trace.functions()
        if self.memory is not None:
            functions = self.memory.joined(functions, self.trace.codes())
        warnings = record.warnings
        if record.without_model:  # that it has no steps is no news
            warnings = tuple(warning for warning in warnings if warning.id != "loop-not-recorded")
        warnings = (*warnings, *self._warnings(record))
        return msgspec.structs.replace(record, functions=functions, warnings=warnings)

    def _warnings(self, record: Loop) -> Iterator[MeasurementWarning]:
        for name in self.trace.missing:
            yield MeasurementWarning(
                id="function-not-called",
                message=f"No function '{name}' was called.",
                probe="lines",
                remedy="Give its name, Class.name or file.py:name; functions compiled to machine "
                "code have no lines.",
            )
        if self.trace.cut:
            yield MeasurementWarning(
                id="lines-cut",
                message="The lines are those until another tracer took over.",
                probe="lines",
                cause="The program set a trace function of its own (a debugger, coverage).",
                remedy="Run it without.",
            )
        if not record.without_model:
            yield MeasurementWarning(
                id="lines-slow",
                message="Tracing lines slowed the steps down: compare their times with none.",
                probe="lines",
                remedy="Run it without --lines for the times of steps.",
            )
        elif self.memory is not None:
            yield MeasurementWarning(
                id="lines-slow",
                message="Recording allocations slowed the lines that make many of them down.",
                probe="lines",
                remedy="Run it without --memory for their times.",
            )
