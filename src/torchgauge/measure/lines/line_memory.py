"""Bytes allocated by line, recorded by memray: the sizes requested of malloc and mmap.

Tensors on the CPU and NumPy's arrays are among them; memory of a GPU is not. Python's small objects
(512 bytes at most) come from pools, and count where a pool is taken.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType

import msgspec

from torchgauge.errors import MeasurementError
from torchgauge.imports import required
from torchgauge.measure.lines.line_samples import kind_of
from torchgauge.measure.lines.line_trace import LineTrace
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.tree import TracedFunction
from torchgauge.temporary import temporary_folder

Line = tuple[str, int]  # file and line
Function = tuple[str, str, int]  # file, qualified name and first line


class LineMemory:
    """Records allocations while a block runs, in all threads.

    Raises MissingExtraError where memray is not installed.
    """

    def __init__(self) -> None:
        self._memray = required("memray", "memray", "Bytes by line")
        # By stack: its lines (file and number, the innermost first), and the bytes.
        self._stacks: list[tuple[tuple[Line, ...], int]] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record until the block ends; raises MeasurementError `lines-unavailable`."""
        with temporary_folder() as folder:
            file = folder / "allocations"
            try:
                tracker = self._memray.Tracker(file)
                tracker.__enter__()
            except RuntimeError as error:
                raise MeasurementError(
                    "Bytes by line cannot be recorded here.",
                    id="lines-unavailable",
                    cause=str(error),
                    remedy="Run it without the other memory profiler, or without --memory.",
                ) from error
            try:
                yield
            finally:
                tracker.__exit__(None, None, None)
                self._read(file)

    def _read(self, file: Path) -> None:
        sizes: Counter[int] = Counter()
        stacks: dict[int, tuple[Line, ...]] = {}
        with self._memray.FileReader(file) as reader:
            for record in reader.get_allocation_records():
                if not record.size:  # something was freed
                    continue
                stack = record.stack_id
                if stack not in stacks:
                    stacks[stack] = tuple((path, line) for _, path, line in record.stack_trace())
                sizes[stack] += record.size
        self._stacks = [
            (stacks[stack], size) for stack, size in sizes.items() if _by_program(stacks[stack])
        ]

    def joined(
        self, functions: Iterable[TracedFunction], codes: Iterable[CodeType]
    ) -> tuple[TracedFunction, ...]:
        """Return the functions with what each line, and what it called, allocated."""
        return allocated(functions, codes, self._stacks)


def _by_program(stack: tuple[Line, ...]) -> bool:
    """Return whether the program allocated, and not the tracer."""
    return bool(stack) and kind_of(stack[0][0]) != "ours"


def allocated(
    functions: Iterable[TracedFunction],
    codes: Iterable[CodeType],
    stacks: Sequence[tuple[tuple[Line, ...], int]],
) -> tuple[TracedFunction, ...]:
    """Return the functions with bytes: each of a stack has it once, in its innermost line."""
    owner = {
        (code.co_filename, line): (
            os.path.abspath(code.co_filename),  # noqa: PTH100 - as the trace has it
            code.co_qualname,
            code.co_firstlineno,
        )
        for code in codes
        for _, _, line in code.co_lines()
        if line is not None
    }
    sizes: Counter[tuple[Function, int]] = Counter()
    for stack, size in stacks:
        met = set()
        for line in stack:
            function = owner.get(line)
            if function is not None and function not in met:
                met.add(function)
                sizes[function, line[1]] += size
    return tuple(_with_bytes(traced, sizes) for traced in functions)


def _with_bytes(function: TracedFunction, sizes: Counter[tuple[Function, int]]) -> TracedFunction:
    key = (function.file, function.name, function.line)
    lines = tuple(
        msgspec.structs.replace(line, allocated=sizes[key, line.line]) for line in function.lines
    )
    return msgspec.structs.replace(
        function, lines=lines, allocated=sum(line.allocated or 0 for line in lines)
    )


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
