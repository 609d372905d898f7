"""One reader of a history that others write to, move or replace meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar, cast

from sqlalchemy import Connection

from torchgauge.errors import StoreError
from torchgauge.history import connection as connections
from torchgauge.history.patience import patiently
from torchgauge.history.store import Store

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
# A request waits so long for a history that another program has locked, in seconds.
LONGEST_WAIT = 5.0


class HistoryReader:
    """Reads from a history in one thread at a time; opens it again where its file is another.

    Raises what `Store.open` raises, at first and whenever it is read.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._place = connections.parse_place(location)
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._stamp: object = None
        self.display_name = self._place.display_name
        self.read(lambda _store: None)

    def read(self, query: Callable[[Store], Result]) -> Result:
        """Return what `query` returns of the store; waits while somebody has locked it."""
        with self._lock:
            try:
                return patiently(lambda: query(self._current()), longest=LONGEST_WAIT)
            except StoreError as error:
                if error.id != "store-busy":
                    self._close()
                raise

    def query(
        self,
        function: Callable[Concatenate[Connection, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Return what a function of a connection returns, which sees one moment of the history."""
        return self.read(
            lambda store: cast(
                Result, store.read(lambda connection: function(connection, *arguments, **options))
            )
        )

    def close(self) -> None:
        """Give back the connections."""
        with self._lock:
            self._close()

    def _current(self) -> Store:
        """Return the store, opened again if its file changed its place or its kind.

        A copy of an older store, and a file that nobody wrote to when it was opened, are read as
        they were then.
        """
        stamp = self._file_stamp()
        if self._store is None or stamp != self._stamp:
            self._close()
            self._store, self._stamp = Store.open(self._location, create=False), stamp
        return self._store

    def _file_stamp(self) -> object:
        file = self._place.file
        if file is None:
            return None
        try:
            status = file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size, connections.has_log(self._place)

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = None
