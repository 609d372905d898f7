"""Limits on the time and size of a store's answers: its file may come from anywhere.

A damaged or hostile file of a few kilobytes can hold rows without end, or a value of a gigabyte.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, text

from torchgauge.errors import InputError
from torchgauge.reading import RECORD

VARIABLE = "TORCHGAUGE_STORE_TIMEOUT"
LONGEST = 60.0  # seconds of one look into a store
# Steps of SQLite's machine between two looks at the clock: about a millisecond.
_STEPS = 20_000
_LONGEST_VALUE = 10**9  # SQLite's own


def query_timeout() -> float:
    """Return the seconds that one look may take. Raises InputError `store-timeout-invalid`."""
    setting = os.environ.get(VARIABLE)
    if not setting:
        return LONGEST
    try:
        seconds = float(setting)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise InputError(
            f"{VARIABLE} is not a number of seconds: '{setting}'.",
            id="store-timeout-invalid",
            remedy=f"Write it as 300, or unset {VARIABLE}.",
        )
    return seconds


@contextlib.contextmanager
def bounded(connection: Connection) -> Iterator[None]:
    """Let the database give up after `query_timeout`, and on values larger than records.

    Raises msgspec.ValidationError for a file that is no history's.
    """
    seconds = query_timeout()
    if connection.dialect.name != "sqlite":
        connection.execute(text(f"SET LOCAL statement_timeout = {int(seconds * 1000)}"))
        yield
        return
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - the dialect's only driver here
    end = time.monotonic() + seconds
    _check_tables(connection)
    driver.setlimit(
        sqlite3.SQLITE_LIMIT_LENGTH, min(RECORD.limit_for(RECORD.maximum), _LONGEST_VALUE)
    )
    driver.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def _check_tables(connection: Connection) -> None:
    """Raise msgspec.ValidationError for a store with code in it: a view's rows may have no end."""
    query = "SELECT count(*) FROM sqlite_master WHERE type IN ('view', 'trigger')"
    if connection.exec_driver_sql(query).scalar_one():
        raise msgspec.ValidationError("it has views or triggers, which no history has")


def rows(connection: Connection, query: Select[Any], minimum_bytes: int) -> Iterator[Any]:
    """Yield the rows of a query, each of at least `minimum_bytes` in the file.

    Raises msgspec.ValidationError where they are more than the file has room for.
    """
    room = _room(connection)
    for number, row in enumerate(connection.execute(query), start=1):
        if room is not None and number * minimum_bytes > room:
            raise msgspec.ValidationError("it has more rows than its file has room for")
        yield row


def _room(connection: Connection) -> int | None:
    """Return the bytes of a store's file; None of a server's database."""
    if connection.dialect.name != "sqlite":
        return None
    pages, size = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("page_count", "page_size")
    )
    return int(pages) * int(size)
