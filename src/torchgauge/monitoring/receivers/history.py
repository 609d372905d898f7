"""Windows into a history, in SQLite or PostgreSQL."""

from __future__ import annotations

import os
import threading

from torchgauge.errors import MeasurementError
from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows
from torchgauge.monitoring.delivery import Batch

LONGEST_WAIT = 1.0  # seconds that a fork waits


class _OpenHistory(threading.local):
    """Lets a fork wait until no monitor of the process has a history open.

    A forked process would take SQLite's locks of its parent for its own, and write beside others.
    """

    lock = threading.Lock()
    inherited = False
    has_turn = False

    def watch(self) -> None:
        """Look after the forks of this process."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before, after_in_parent=self._after, after_in_child=self._begin
            )

    def _before(self) -> None:
        self.has_turn = self.lock.acquire(timeout=LONGEST_WAIT)

    def _after(self) -> None:
        if self.has_turn:
            self.lock.release()

    def _begin(self) -> None:
        _OpenHistory.inherited |= not self.has_turn
        _OpenHistory.lock = threading.Lock()


_open_history = _OpenHistory()
_open_history.watch()


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
        if _open_history.inherited:
            raise MeasurementError(
                "This process cannot write to the history.",
                id="history-forked",
                cause="It was forked while its parent had it open, and would damage it.",
            )
        with _open_history.lock, Store.open(self._location) as store:
            add_windows(store, batch.windows, batch.process)
