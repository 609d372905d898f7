"""Report a model that ends the process: no job of a pipeline passes by it."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from torchgauge.cli.output import tell
from torchgauge.errors import ExitCode
from torchgauge.forks import Owner
from torchgauge.signals import handler_of, replaced, restoring, set_handler

# What the others of the family call; the last two end it by a signal.
_ENDS = ("_exit", "abort", "execv", "execve", "kill", "killpg")
_IGNORED = ("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH")  # by name: not every system has all


@restoring
def refused() -> Iterator[None]:
    """In the block what ends this process at once raises SystemExit, as `sys.exit` does.

    os._exit, os.abort, os.exec…, and os.kill and os.killpg of this process or its group by a signal
    that nothing handles; a forked process may end as it likes. On another thread, which an
    exception would end alone, the process ends with 1 and says why.
    """
    owner, places = Owner(), [os, sys.modules[os.name]]
    refusing = [
        (place, name, _refusing(name, getattr(place, name), owner))
        for place in places
        for name in _ENDS
        if hasattr(place, name)
    ]
    with replaced(refusing):
        yield


def _refusing(name: str, original: Callable[..., Any], owner: Owner) -> Callable[..., Any]:
    @functools.wraps(original)
    def end(*arguments: Any, **keywords: Any) -> Any:
        if owner.in_fork or not _ends_process(name, arguments):
            return original(*arguments, **keywords)
        called = f"os.{name}({', '.join(map(repr, arguments))})"
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(called)
        tell(f"torchgauge: error: A thread called {called}. [model-exited]")
        return _end_now(ExitCode.MEASUREMENT_FAILED)

    return end


def _ends_process(name: str, arguments: Sequence[Any]) -> bool:
    if not name.startswith("kill"):
        return True
    process, number = arguments
    group = os.getpgrp()
    own = (0, group) if name == "killpg" else (0, -1, os.getpid(), -group)
    ignored = [getattr(signal, ignored, None) for ignored in _IGNORED]
    return (
        process in own
        and number not in ignored
        and number in signal.valid_signals()
        and signal.getsignal(number) is signal.SIG_DFL
    )


_end_now = os._exit


_ENDING = ("SIGTERM", "SIGHUP")  # by name: not every system has both


@restoring
def as_ctrl_c() -> Iterator[None]:
    """Take them in the block as Ctrl-C, where no other code handles or ignores them.

    Only in the main thread, which alone gets signals.
    """
    main = threading.current_thread() is threading.main_thread()
    ending = [getattr(signal, name) for name in _ENDING if main and hasattr(signal, name)]
    captured = [number for number in ending if handler_of(number) is signal.SIG_DFL]
    for number in captured:
        set_handler(number, _interrupt)
    try:
        yield
    finally:
        for number in captured:
            if handler_of(number) is _interrupt:
                set_handler(number, signal.SIG_DFL)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # a shell's background job ignores Ctrl-C, and is to end all the same
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
