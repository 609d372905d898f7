"""SIGTERM and SIGHUP as Ctrl-C: a cancelled job keeps what it measured, and leaves nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

from torchgauge.signals import handler_of, restoring, set_handler

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
