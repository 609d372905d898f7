"""The other end of `fork_server`: import, then fork a measuring process for each line read."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from torchgauge.garbage import no_collections
from torchgauge.measure.processes.child_work import answer_to


def serve(
    modules: Sequence[str],
    end_with: Callable[[int], None],
    take_the_first: Callable[[int, FrameType | None], None],
) -> None:
    """Import torch and `modules`, then measure in a forked process for each folder named.

    Each line of standard input is a kind of work (`processes.Work`) and a folder with a request.
    Standard output has lines of what happens: "ready" once all is imported, "forked" with a
    process's number, "ended" with its number and exit code. Nothing of torch runs in this process.
    `end_with` ties a process to its parent, `take_the_first` is its handler of Ctrl-C.
    """
    interruptible = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the measuring process takes it
    questions, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    _import(modules)
    os.write(answers, b"ready\n")
    signal.signal(signal.SIGCHLD, lambda *_: _report_ends(answers))
    with os.fdopen(questions, "rb") as lines:
        for line in lines:
            server = os.getpid()
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(answers)
                os.dup2(nowhere, 1)
                signal.signal(signal.SIGINT, take_the_first if interruptible else signal.SIG_IGN)
                work, _, folder = line.decode().rstrip("\n").partition(" ")
                _measure(work, Path(folder), functools.partial(end_with, server))
            os.write(answers, b"forked %d\n" % child)


def _report_ends(answers: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            os.write(answers, b"ended %d %d\n" % (ended[0], os.waitstatus_to_exitcode(ended[1])))


def _import(modules: Sequence[str]) -> None:
    # With torch and all that measuring and answering need, so that no process imports them anew.
    with no_collections():
        import torchgauge.measure.latency.latency
        import torchgauge.measure.processes.processes
        import torchgauge.measure.processes.waiting_child  # noqa: F401

        for name in modules:
            # What cannot be imported here is told where the model is loaded.
            with warnings.catch_warnings(), contextlib.suppress(Exception):
                warnings.simplefilter("ignore")
                importlib.import_module(name)


def _measure(work: str, folder: Path, end_with_server: Callable[[], None]) -> None:
    """Do the work of one process and end it, without what Python does at an exit."""
    code = 1
    try:
        end_with_server()
        errors = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(errors, 2)
        request = (folder / "request").open("rb")
        if work == "wait":
            _wait(folder, request)
        else:
            answer_to(folder, request, work)
        code = 0
    except BaseException:  # noqa: BLE001 - its text is what the parent shows
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)


def _wait(folder: Path, request: BinaryIO) -> None:
    from torchgauge.measure.processes.waiting_child import serve as answer_questions

    for number, (name, flags) in enumerate((("questions", os.O_RDONLY), ("answers", os.O_WRONLY))):
        pipe = os.open(folder / name, flags)
        os.dup2(pipe, number)
        os.close(pipe)
    answer_questions(request)
