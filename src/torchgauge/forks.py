"""The process that owns a resource, distinguished from the processes forked from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from torchgauge.errors import TorchgaugeError
from torchgauge.signals import raised_by_handler

# Passes through the user's code, and is no failure of it: Ctrl-C, the end of a generator.
PASSING = (TorchgaugeError, KeyboardInterrupt, GeneratorExit)


class Owner:
    """The process that makes this; `in_fork` is True in those that are forked from it.

    In a forked process nothing of ours writes, removes or reports: it is the user's.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def in_fork(self) -> bool:
        """Whether this is another process than the owner."""
        return os.getpid() != self._process

    def lets_pass(self, error: BaseException) -> bool:
        """Return whether an error ends a fork, or comes from a signal's handler."""
        return self.in_fork or (not isinstance(error, Exception) and raised_by_handler(error))

    def end_fork(self) -> None:
        """End a forked process that has come back from the user's code into a measurement."""
        if self.in_fork:
            raise SystemExit(0)


@contextlib.contextmanager
def translating(translated: Callable[[BaseException], TorchgaugeError]) -> Iterator[None]:
    """Raise what `translated` returns of whatever the user's code in the block raises.

    Errors of torchgauge itself and interruptions pass through, also of the program's own signal
    handlers, and all in a process that the code forked.
    """
    owner = Owner()
    try:
        yield
    except PASSING:
        raise
    except BaseException as error:  # the user's code may raise anything
        if owner.lets_pass(error):
            raise
        raise translated(error) from error


def after_fork_in_child(function: Callable[[], None]) -> None:
    """Let a function run in each forked process, where the system forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
