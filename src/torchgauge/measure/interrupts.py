"""Ctrl-C: raised inside a probe and noted outside, so that it never costs what was measured."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupts:
    """While entered, the first Ctrl-C sets `noted`; a second, and any inside `allowed`, is raised.

    Only in the main thread, which alone gets signals, and not over a handler of the user's own.
    To leave what was not entered does nothing.
    """

    def __init__(self) -> None:
        self.noted = False
        self._raises = False
        self._installed = False

    def __enter__(self) -> Interrupts:
        """Take over Ctrl-C."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._take)
            self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        if self._installed and signal.getsignal(signal.SIGINT) == self._take:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Let Ctrl-C raise KeyboardInterrupt in the block; one noted before does so at once."""
        if self.noted:
            raise KeyboardInterrupt
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if self._raises or self.noted:
            raise KeyboardInterrupt
        self.noted = True
