"""Translate database errors into errors with a stable id, a cause and a remedy."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import msgspec
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from torchgauge.errors import StoreError
from torchgauge.history.bounds import LONGEST, VARIABLE

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
