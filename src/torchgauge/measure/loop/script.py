"""Run a program as Python would, with a timeline around it that the program knows nothing of."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import msgspec

from torchgauge.errors import InputError
from torchgauge.files import check_readable, is_file, is_folder, path_remedy
from torchgauge.folders import PACKAGE, working_folder
from torchgauge.forks import Owner
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.lines.line_memory import ScriptLines
from torchgauge.measure.loop.loop import Timeline
from torchgauge.records.timeline.loop import Loop

_OWN = str(PACKAGE)


@dataclasses.dataclass(frozen=True)
class ProgramResult:
    """The loop's record, the program's exit code, and what it raised, which is not shown yet."""

    record: Loop
    code: int
    error: BaseException | None = None


def run_program(
    command: Sequence[str],
    *,
    module: bool,
    timeline: Timeline,
    interrupts: Interrupts,
    lines: ScriptLines | None = None,
) -> ProgramResult:
    """Run a script and its arguments, or a module with `module`, within the timeline.

    With `lines` its functions are traced by line.

    `sys.argv` and `sys.path[0]` are as Python makes them. A program that ends its process at once
    (`os._exit`, a signal) leaves no record. In a process that the program forks nothing is left of
    the timeline: what ends it is raised here. After the program's last line `interrupts` are
    entered, so that the record is made although Ctrl-C comes meanwhile; the caller leaves them.
    Raises InputError `file-missing`, `module-missing`.
    """
    argv, path = sys.argv, sys.path[:]
    owner = Owner()
    sys.argv = list(command)
    if not sys.flags.safe_path:
        sys.path[0] = str(working_folder() if module else Path(command[0]).resolve().parent)
    error: BaseException | None = None
    try:
        _check(command[0], module=module)
        timeline.__enter__()
        try:
            with contextlib.nullcontext() if lines is None else lines.tracing():
                _execute(command[0], module=module)
        except BaseException as raised:  # noqa: BLE001 - the program's own end, told to the caller
            if owner.in_fork:
                _end_child(raised)
            error = raised
        owner.end_fork()
        interrupts.__enter__()
        timeline.__exit__(type(error) if error else None, error, None)
    finally:
        sys.argv, sys.path[:] = argv, path
    record = timeline.record if lines is None else lines.added(timeline.record)
    if interrupts.noted:
        record = msgspec.structs.replace(record, interrupted=True)
    return ProgramResult(record, _code(error), error)


def _end_child(error: BaseException) -> NoReturn:
    """End a process that the program forked as Python would, its traceback without our frames."""
    if isinstance(error, KeyboardInterrupt):  # Python shows it, and ends by the signal
        hook = sys.excepthook

        def show_program_frames(
            kind: type[BaseException], raised: BaseException, trace: TracebackType | None
        ) -> None:
            # Python's own hook shows the traceback that the exception holds.
            program_trace = _program_traceback(trace)
            hook(kind, raised.with_traceback(program_trace), program_trace)

        sys.excepthook = show_program_frames
    if isinstance(error, SystemExit | KeyboardInterrupt):
        raise error
    show(error)
    raise SystemExit(1)


def _execute(program: str, *, module: bool) -> None:
    if module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def _check(program: str, *, module: bool) -> None:
    if not module:
        path = Path(program)
        check_readable(path)
        if is_file(path) or is_folder(path):
            return
        raise InputError(
            f"There is no script {program}.",
            id="file-missing",
            remedy=f"{path_remedy(path)} For a module use -m.",
        )
    try:
        spec = importlib.util.find_spec(program)
    except ModuleNotFoundError:  # a package above it
        spec = None
    if spec is None:
        raise InputError(
            f"There is no Python module {program}.",
            id="module-missing",
            cause=f"It is neither in {working_folder()} nor among the installed packages.",
            remedy="Run from the folder that it lies in, or give the file without -m.",
        )


def _code(error: BaseException | None) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 130
    code = error.code if isinstance(error, SystemExit) else error
    return 0 if code is None else code if isinstance(code, int) else 1


def show(error: BaseException) -> None:
    """Print to standard error what Python would print of what the program raised."""
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            sys.stderr.write(f"{error.code}\n")
        return
    visited: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        exception = pending.pop()
        if exception is not None and id(exception) not in visited:
            visited.add(id(exception))
            exception.__traceback__ = _program_traceback(exception.__traceback__)
            pending += [exception.__cause__, exception.__context__]
    sys.excepthook(type(error), error, error.__traceback__)


def _program_traceback(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without our frames and those of runpy."""
    tracebacks = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_OWN) and file not in ("<frozen runpy>", runpy.__file__):
            tracebacks.append(trace)
        trace = trace.tb_next
    program_trace: Any = None
    for traceback in reversed(tracebacks):
        program_trace = TracebackType(
            program_trace, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno
        )
    result: TracebackType | None = program_trace
    return result
