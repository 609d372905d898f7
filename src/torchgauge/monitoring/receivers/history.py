"""Windows into a history, in SQLite or PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import threading

from torchgauge.errors import MeasurementError
from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows
from torchgauge.monitoring.delivery import Batch

LONGEST_WAIT = 1.0  # seconds that a fork waits
# Held while a monitor of this process has a history open, which a fork waits for: the forked one
# would take SQLite's locks of its parent for its own, and write beside others.
_open = threading.RLock()
_is_inherited = False


def _before_fork() -> None:
    _open.acquire(timeout=LONGEST_WAIT)


def _in_parent() -> None:
    with contextlib.suppress(RuntimeError):  # it waited in vain
        _open.release()


def _in_child() -> None:
    global _open, _is_inherited
    try:
        _open.release()
    except RuntimeError:
        _open, _is_inherited = threading.RLock(), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


class HistoryReceiver:
    """Adds the windows of a process to a history, which is opened for each batch.

    Windows that a history refuses wait, two hours of minutes at most.
    """

    part = "history"
    backlog = 120

    def __init__(self, location: str) -> None:
        self._location = location

    def receive(self, batch: Batch) -> None:
        """Add the windows.

        Raises StoreError, InputError, MissingExtraError, MeasurementError `history-forked`.
        """
        if _is_inherited:
            raise MeasurementError(
                "This process cannot write to the history.",
                id="history-forked",
                cause="It was forked while its parent had it open, and would damage it.",
            )
        with _open, Store.open(self._location) as store:
            add_windows(store, batch.windows, batch.process)
