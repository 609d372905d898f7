"""Whose something is: a process that was forked from its owner leaves it alone."""

from __future__ import annotations

import os


class Owner:
    """The process that makes this; `elsewhere` is True in those that are forked from it.

    In a forked process nothing of ours writes, removes or reports: it is the user's.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def elsewhere(self) -> bool:
        """Whether this is another process than the owner."""
        return os.getpid() != self._process

    def end_elsewhere(self) -> None:
        """End a forked process that has come back from the user's code into a measurement."""
        if self.elsewhere:
            raise SystemExit(0)
