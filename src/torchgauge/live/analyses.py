"""Analyses that take longer than a request may: made once for each state of their data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future, wait
from typing import Generic, NamedTuple, TypeVar

Result = TypeVar("Result")
MAX_ENTRIES = 2_000
RETRY = 30.0  # seconds after which what failed is tried again


class _Entry(NamedTuple):
    state: Hashable
    future: Future[object]
    previous: object | None
    begin: float


class Analyses(Generic[Result]):
    """The newest result of each analysis, made again in the background when its data change.

    `patience` is how long a caller waits for it, in seconds.
    """

    def __init__(
        self, executor: Executor, patience: float = 0.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._executor = executor
        self._patience = patience
        self._now = now
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}

    def result(
        self, name: Hashable, state: Hashable, analyze: Callable[[], Result]
    ) -> tuple[Result | None, bool]:
        """Return the result for this state of the data, and True.

        While it is being made: that of an earlier state, None if there is none, and False. Raises
        what `analyze` raised, which is tried again a while later.
        """
        with self._lock:
            entry, now = self._entries.pop(name, None), self._now()
            if (
                entry is None
                or entry.state != state
                or (_failed(entry) and now - entry.begin > RETRY)
            ):
                previous = None if entry is None else _value(entry)
                entry = _Entry(state, self._executor.submit(analyze), previous, now)
            self._entries[name] = entry  # the last used one stands at the end
            if len(self._entries) > MAX_ENTRIES:
                del self._entries[next(iter(self._entries))]
        if wait([entry.future], self._patience).done:
            return entry.future.result(), True  # type: ignore[return-value]  # as submitted
        return entry.previous, False  # type: ignore[return-value]


def _value(entry: _Entry) -> object | None:
    """Return the result of an entry, or that of its former state while it is being made."""
    if not entry.future.done():
        return entry.previous
    return None if _failed(entry) else entry.future.result()


def _failed(entry: _Entry) -> bool:
    return entry.future.done() and entry.future.exception() is not None
