"""Translate database errors into errors with a stable id, a cause and a remedy."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from torchgauge.errors import InputError, StoreError
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


_SQLITE = {
    sqlite3.SQLITE_BUSY: "store-busy",
    sqlite3.SQLITE_LOCKED: "store-busy",
    sqlite3.SQLITE_READONLY: "store-read-only",
    sqlite3.SQLITE_PERM: "store-read-only",
    sqlite3.SQLITE_FULL: "store-full",
    sqlite3.SQLITE_IOERR: "store-full",
    sqlite3.SQLITE_CANTOPEN: "store-unreachable",
    sqlite3.SQLITE_CORRUPT: "store-damaged",
    sqlite3.SQLITE_TOOBIG: "store-damaged",
    sqlite3.SQLITE_INTERRUPT: "store-slow",
    sqlite3.SQLITE_NOTADB: "store-damaged",
}
# The states of PostgreSQL by their beginnings, the longer first.
_STATES = (
    ("40001", "store-busy"),
    ("40P01", "store-busy"),
    ("55P03", "store-busy"),
    ("53300", "store-busy"),
    ("57P03", "store-busy"),
    ("53100", "store-full"),
    ("25006", "store-read-only"),
    ("42501", "store-read-only"),
    ("57014", "store-slow"),
    ("08", "store-unreachable"),
    ("28", "store-unreachable"),
    ("3D", "store-unreachable"),
    ("57", "store-unreachable"),
    ("XX", "store-damaged"),
)
_MESSAGES = {
    "store-busy": (
        "The history '{}' is busy with other writers.",
        "Try again; many machines that write at once need PostgreSQL (--store postgresql://…).",
    ),
    "store-read-only": (
        "The history '{}' cannot be written.",
        "Get permission to write there, or choose another with --store.",
    ),
    "store-full": (
        "The history '{}' cannot take more: the disk is full or failing.",
        "Free space, or remove old runs: `torchgauge history prune --older-than 90d`.",
    ),
    "store-unreachable": (
        "The history '{}' cannot be opened.",
        "Check --store or TORCHGAUGE_STORE, and that the database runs and lets you in.",
    ),
    "store-damaged": (
        "The history '{}' is damaged, or not a history.",
        "Move it away and restore a copy, or add the saved runs again to a new one.",
    ),
    "store-slow": (
        "The history '{}' took too long to answer.",
        f"Where it is that large, allow more than {LONGEST:g} seconds: {VARIABLE}=600.",
    ),
    "store-failed": (
        "The history '{}' refused what was asked.",
        "Please report it with the cause.",
    ),
}


@contextlib.contextmanager
def translated_errors(place: str) -> Iterator[None]:
    """Raise StoreError in place of what the database raises in the block; `place` is shown."""
    try:
        yield
    except SQLAlchemyError as error:
        # What a database says is no traceback of the user's code: the cause has all of it.
        raise fault(_id(error), place, _cause(error)) from None
    except (UnicodeDecodeError, msgspec.ValidationError) as error:
        # A damaged file of SQLite may hold anything where text or a number was.
        raise fault("store-damaged", place, str(error)) from None


def fault(id: str, place: str, cause: str) -> StoreError:
    """Return the error of an id that this file knows."""
    message, remedy = _MESSAGES[id]
    return StoreError(message.format(place), id=id, cause=cause, remedy=remedy)


def _id(error: SQLAlchemyError) -> str:
    original = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(original, sqlite3.Error):
        # The low byte says what, the others where; Python's own error, on bytes that are no text,
        # has none.
        code = getattr(original, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        return _SQLITE.get(code & 0xFF, "store-failed")
    state = getattr(original, "sqlstate", None)
    if state is not None:
        return next(
            (error_id for start, error_id in _STATES if state.startswith(start)), "store-failed"
        )
    lost = original is not None and type(original).__name__ == "OperationalError"
    return "store-unreachable" if lost else "store-failed"


def _cause(error: SQLAlchemyError) -> str:
    # Not str(error): it repeats the statement with all that was to be stored.
    original = error.orig if isinstance(error, DBAPIError) else error
    return " ".join(str(original).split()) or type(original).__name__
