"""Windows into a history, in SQLite or PostgreSQL."""

from __future__ import annotations

from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows
from torchgauge.monitoring.delivery import Batch


class HistoryReceiver:
    """Adds the windows of a process to a history, which is opened for each batch.

    Windows that a history refuses wait, two hours of minutes at most.
    """

    part = "history"
    backlog = 120

    def __init__(self, location: str) -> None:
        self._location = location

    def receive(self, batch: Batch) -> None:
        """Add the windows. Raises StoreError, InputError, MissingExtraError."""
        with Store.open(self._location) as store:
            add_windows(store, batch.windows, batch.process)
