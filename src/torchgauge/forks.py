"""The process that owns a resource, distinguished from the processes forked from it."""

from __future__ import annotations

import os


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

    def end_fork(self) -> None:
        """End a forked process that has come back from the user's code into a measurement."""
        if self.in_fork:
            raise SystemExit(0)
