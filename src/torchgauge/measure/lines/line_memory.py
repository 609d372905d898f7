"""Bytes allocated by line, recorded by memray: the sizes requested of malloc and mmap.

Tensors on the CPU and NumPy's arrays are among them; memory of a GPU is not. Python's small objects
(512 bytes at most) come from pools, and count where a pool is taken.

A line has the time until the next line of its function begins, what it calls included. Where a
function calls itself, the innermost call's lines have the time, so that a function's lines add up
to the time in it. The clock stands still while a line is noted. Samples (`line_samples`) would cost
less; but signals are not looked at between all instructions, and what an operator on arrays takes
would be told as the next line's.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from pathlib import Path, PurePath
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

import msgspec

from torchgauge.errors import MeasurementError
from torchgauge.forks import after_fork_in_child
from torchgauge.imports import required
from torchgauge.measure.lines.line_samples import kind_of
from torchgauge.measure.work.internals import never_compiled
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.tree import TracedFunction, TracedLine
from torchgauge.signals import restoring
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


_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_active: LineTrace | None = None

MODULE = "<module>"
LOCALS = "<locals>."


class _Clock:
    """One thread's nanoseconds without those that noting lines takes."""

    __slots__ = ("now", "spent")

    def __init__(self, now: Callable[[], int]) -> None:
        self.now = now
        self.spent = 0


class _Function:
    """The lines of one function in one thread, and the one that runs."""

    __slots__ = ("calls", "clock", "code", "file", "hits", "line", "outer", "start", "times")

    def __init__(self, code: CodeType, clock: _Clock) -> None:
        self.code = code
        self.file = os.path.abspath(code.co_filename)  # noqa: PTH100 - symbolic links stay
        self.clock = clock
        self.calls = 0
        self.hits: Counter[int] = Counter()
        self.times: Counter[int] = Counter()
        self.line: int | None = None
        self.outer: list[int | None] = []
        self.start = 0

    def note(self, frame: FrameType, event: str, _arg: object) -> Callable[..., Any]:
        """Take an event of the function's: a call, a line, a return."""
        clock = self.clock
        began = clock.now()
        now = began - clock.spent
        if self.line is not None:
            self.times[self.line] += now - self.start
        self.start = now
        if event == "line":
            self.line = frame.f_lineno
            self.hits[self.line] += 1
        elif event == "call":
            self.outer.append(self.line)
            self.line = self._entered(frame)
        elif event == "return":
            self.line = self.outer.pop() if self.outer else None
        clock.spent += clock.now() - began
        return self.note

    def _entered(self, frame: FrameType) -> int | None:
        """Count a call, or return the line in which a generator goes on."""
        if self.code.co_flags & _RESUMED and frame.f_lineno != self.code.co_firstlineno:
            return frame.f_lineno
        self.calls += 1
        return None

    def close(self) -> None:
        """Let the line that still runs, in a thread that goes on, have its time until now."""
        if self.line is not None:
            self.times[self.line] += self.clock.now() - self.clock.spent - self.start
            self.line = None


class LineTrace:
    """Traces functions while a block runs: in its thread, and in those that are started in it."""

    def __init__(
        self, functions: Sequence[str] = (), now: Callable[[], int] = perf_counter_ns
    ) -> None:
        self.traced_code = _TracedCode(functions)
        self.cut = False  # by another tracer, which took this one's place
        self._now = now
        # By the code's id: its hash takes longer than a call. The code is kept, and so its id.
        self._traced_by_id: dict[int, tuple[CodeType, bool]] = {}
        self._thread_local = threading.local()
        self._functions: list[_Function] = []
        self._on = False
        self._imported = frozenset(sys.modules)

    @restoring
    def tracing(self) -> Iterator[None]:
        """Trace until the block ends.

        Raises MeasurementError `lines-unavailable` where something else traces already.
        """
        global _active
        if sys.gettrace() is not None:
            raise MeasurementError(
                "Lines cannot be traced here.",
                id="lines-unavailable",
                cause="A debugger or a coverage tool traces this process already.",
                remedy="Run it without the other tool.",
            )
        self._on, _active = True, self
        threading.settrace(self._called)
        sys.settrace(self._called)
        try:
            yield
        finally:
            self.cut = sys.gettrace() != self._called
            self._end()
            for function in self._functions:
                function.close()

    def _end(self) -> None:
        global _active
        self._on, _active = False, None
        sys.settrace(None)
        threading.settrace(None)

    def _called(self, frame: FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        code = frame.f_code
        cached = self._traced_by_id.get(id(code))
        if cached is None:
            cached = self._traced_by_id[id(code)] = (code, frame in self.traced_code)
        if not cached[1] or not self._on:
            return None
        return self._function(code).note(frame, "call", None)

    def _function(self, code: CodeType) -> _Function:
        thread_functions: dict[int, _Function] | None = getattr(
            self._thread_local, "functions", None
        )
        if thread_functions is None:
            thread_functions = self._thread_local.functions = {}
            self._thread_local.clock = _Clock(self._now)
        function = thread_functions.get(id(code))
        if function is None:
            function = thread_functions[id(code)] = _Function(code, self._thread_local.clock)
            self._functions.append(function)
        return function

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of requested functions that nothing called."""
        return tuple(name for name in self.traced_code.names if name not in self.traced_code.called)

    def codes(self) -> list[CodeType]:
        """Return the code objects that were traced."""
        return [code for code, is_traced in self._traced_by_id.values() if is_traced]

    def functions(self) -> tuple[TracedFunction, ...]:
        """Return what was traced, most time first."""
        merged: dict[tuple[str, str, int], list[_Function]] = {}
        for function in self._functions:
            key = (function.file, function.code.co_qualname, function.code.co_firstlineno)
            merged.setdefault(key, []).append(function)
        new = sys.modules.keys() - self._imported
        for (file, name, _), by_thread in merged.items():
            for line in _done_imports(file, self._imported, new) if name == MODULE else ():
                for function in by_thread:
                    del function.hits[line], function.times[line]
        functions = [_merged(*key, by_thread) for key, by_thread in merged.items()]
        return tuple(sorted(functions, key=lambda function: -function.time))


def _merged(file: str, name: str, line: int, by_thread: Iterable[_Function]) -> TracedFunction:
    hits: Counter[int] = Counter()
    times: Counter[int] = Counter()
    calls = 0
    for function in by_thread:
        hits.update(function.hits)
        times.update(function.times)
        calls += function.calls
    lines = tuple(
        TracedLine(
            line=number,
            hits=hits[number],
            time=times[number] * 1e-9,
            source=linecache.getline(file, number).strip(),
        )
        for number in sorted(hits.keys() | times.keys())
    )
    return TracedFunction(
        file=file, name=name, line=line, calls=calls, time=sum(times.values()) * 1e-9, lines=lines
    )


def _done_imports(file: str, before: Set[str], new: Set[str]) -> set[int]:
    """Return the lines that only import what was imported before the program began."""
    import_lines: set[int] = set()
    other_lines: set[int] = set()
    try:
        program = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # being edited
        return set()
    for statement in ast.walk(program):
        names: set[str] = set()
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in statement.names}
        if isinstance(statement, ast.ImportFrom):  # "." of the script's own package
            module = statement.module or "."
            names = {module, *(f"{module}.{name}" for name in names)}
        if isinstance(statement, ast.stmt):
            lines = import_lines if names & before and not names & new else other_lines
            lines.add(statement.lineno)
    return import_lines - other_lines


def _end_in_child() -> None:
    """Let a forked process, which has no record, run untraced."""
    if _active is not None:
        _active._end()  # noqa: SLF001 - the same file


for _function in (_Function.note, _Function._entered, LineTrace._called):  # noqa: SLF001
    never_compiled(_function, below=True)
after_fork_in_child(_end_in_child)


class _TracedCode:
    """Functions by `names`: a name, with or without what it is in, or either after `file.py:`.

    Without names, the functions that are neither Python's, torch's nor a library's, and what stands
    outside of functions in the script.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.called: set[str] = set()  # the names of which a function was called

    def __contains__(self, frame: FrameType) -> bool:
        """Tell whether the lines of a frame's function are wanted."""
        code = frame.f_code
        if not self.names:
            if code.co_name == MODULE:
                is_traced = frame.f_globals.get("__name__") == "__main__"
            else:
                is_traced = _is_function(code)
            return is_traced and kind_of(code.co_filename) == "user's"
        matching = {name for name in self.names if _is_function(code) and _matches(name, code)}
        self.called |= matching
        return bool(matching)


def _is_function(code: CodeType) -> bool:
    """Tell a named function from modules, classes, lambdas and comprehensions."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


def _matches(pattern: str, code: CodeType) -> bool:
    file, _, name = pattern.rpartition(":")
    plain = code.co_qualname.replace(LOCALS, "")
    if name != code.co_qualname and not f".{plain}".endswith(f".{name}"):
        return False
    suffix, parts = PurePath(file).parts, PurePath(code.co_filename).parts
    return not suffix or parts[-len(suffix) :] == suffix
