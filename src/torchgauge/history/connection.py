"""Connections to a store: SQLite by file or URL, PostgreSQL by URL, one way to write to both."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from torchgauge.errors import InputError, StoreError, missing_extra
from torchgauge.history.bounds import bounded
from torchgauge.history.faults import fault, told
from torchgauge.history.location import make_folder
from torchgauge.history.patience import ONE_TRY


class Place(NamedTuple):
    """A store's place: `shown` has no password, `file` is None for a database server."""

    url: URL
    shown: str
    file: Path | None


def place(location: str) -> Place:
    """Return the place of a URL or a file's path.

    Raises InputError `store-url`, MissingExtraError for psycopg.
    """
    if "://" not in location:
        file = Path(location).expanduser().absolute()
        return Place(URL.create("sqlite", database=str(file)), str(file), file)
    try:
        url = make_url(location)
        kind = url.get_backend_name()
    except (ArgumentError, ValueError) as error:
        raise _no_store("It cannot be read as a URL.") from error
    if kind == "sqlite" and url.database:
        file = Path(url.database).absolute()
        return Place(url, str(file), file)
    if kind not in ("postgresql", "postgres"):
        raise _no_store(f"'{kind}' is neither sqlite (with a file) nor postgresql.")
    if importlib.util.find_spec("psycopg") is None:
        raise missing_extra("psycopg", "postgres", "A history in PostgreSQL")
    url = url.set(drivername="postgresql+psycopg")
    return Place(url, url.set(drivername="postgresql").set(query={}).render_as_string(), None)


def _no_store(cause: str) -> InputError:
    # The text itself is not repeated: it may hold a password.
    return InputError(
        "The store is no URL of a history.",
        id="store-url",
        cause=cause,
        remedy="Give a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE.",
    )


def engine(where: Place, *, create: bool) -> Engine:
    """Return the engine; `create` makes the file where there is none.

    Raises StoreError `store-missing`, `store-unreachable`.
    """
    if where.file is None:
        with told(where.shown):
            return create_engine(where.url, connect_args={"connect_timeout": 10})
    _check_file(where.file, create=create)
    name = f"{where.file.as_uri()}?{_mode(where.file)}"

    def connect() -> sqlite3.Connection:
        found = sqlite3.connect(
            name, uri=True, timeout=ONE_TRY, isolation_level=None, check_same_thread=False
        )
        if "immutable" not in name:
            # Readers see whole runs while somebody writes; a commit is on the disk when it returns.
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = FULL")
        found.execute("PRAGMA foreign_keys = ON")
        return found

    with told(where.shown):
        made = create_engine("sqlite://", creator=connect)
    event.listen(made, "begin", _begin)
    return made


def _check_file(file: Path, *, create: bool) -> None:
    if file.exists():
        return
    if not create:
        raise StoreError(
            f"There is no history at '{file}'.",
            id="store-missing",
            cause="No run was added yet, or it is elsewhere.",
            remedy="Add one with `torchgauge history add RUN.json`, or say where it is: --store.",
        )
    try:
        make_folder(file)
    except OSError as error:
        what = "store-full" if error.errno == errno.ENOSPC else "store-read-only"
        raise fault(what, str(file), error.strerror or str(error)) from error


def _mode(file: Path) -> str:
    """Return how SQLite shall open it: where nothing can be written it may not even try to lock."""
    if not file.exists():
        return "mode=rwc"
    writable = os.access(file, os.W_OK, effective_ids=True) and os.access(
        file.parent, os.W_OK, effective_ids=True
    )
    alone = not file.with_name(f"{file.name}-wal").exists()
    return "mode=ro&immutable=1" if not writable and alone else "mode=rw"


def _begin(connection: Connection) -> None:
    # A write takes the lock at once: one that is taken while reading could not be waited for.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextlib.contextmanager
def writing(made: Engine, shown: str) -> Iterator[Connection]:
    """Yield a connection whose changes are made all together at the end, or not at all."""
    with told(shown), made.execution_options(writes=True).begin() as connection:
        yield connection


@contextlib.contextmanager
def reading(made: Engine, shown: str) -> Iterator[Connection]:
    """Yield a connection that sees one moment of the store, whoever writes meanwhile."""
    # SQLite does so by itself; PostgreSQL would see another moment in each statement.
    if made.dialect.name == "postgresql":
        made = made.execution_options(isolation_level="REPEATABLE READ")
    with told(shown), made.begin() as connection, bounded(connection):
        yield connection
