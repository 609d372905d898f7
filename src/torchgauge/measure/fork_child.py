"""The other end of `fork_server`: import, then fork a measuring process for each line read."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from torchgauge.measure.child import answer_to, end_with, take_the_first


def serve(modules: Sequence[str]) -> None:
    """Import torch and `modules`, then measure in a forked process for each folder named.

    For each line of standard input, a folder with a request, the process number is written to
    standard output and at its end the exit code. Nothing of torch runs in this process.
    """
    interruptible = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the measuring process takes it
    questions, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    _import(modules)
    os.write(answers, b"ready\n")
    with os.fdopen(questions, "rb") as lines:
        for line in lines:
            server = os.getpid()
            child = os.fork()
            if child == 0:
                os.close(answers)
                os.dup2(nowhere, 1)
                signal.signal(signal.SIGINT, take_the_first if interruptible else signal.SIG_IGN)
                _measure(Path(line.decode().rstrip("\n")), server)
            os.write(answers, b"%d\n" % child)
            _, status = os.waitpid(child, 0)
            os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))


def _import(modules: Sequence[str]) -> None:
    # With torch and all that measuring and answering need, so that no process imports them anew.
    from torchgauge.measure import latency, processes  # noqa: F401

    for name in modules:
        # What cannot be imported here is told where the model is loaded.
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            importlib.import_module(name)


def _measure(folder: Path, server: int) -> None:
    """Do the work of one process and end it, without what Python does at an exit."""
    code = 1
    try:
        end_with(server)
        errors = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(errors, 2)
        answer_to(folder, (folder / "request").open("rb"), "latency")
        code = 0
    except BaseException:  # noqa: BLE001 - its text is what the parent shows
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
