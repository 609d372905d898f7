"""Connections to a store: SQLite by file or URL, PostgreSQL by URL, one way to write to both.

To read, a file is opened so that no byte of it changes; whether it is a history at all is looked at
before that (`versions.py`).
"""

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
from sqlalchemy.pool import StaticPool

from torchgauge.errors import InputError, missing_extra
from torchgauge.files import check_readable, is_file, is_folder
from torchgauge.folders import expanded
from torchgauge.history.faults import bounded, fault, translated_errors
from torchgauge.history.retention import ONE_TRY, make_folder

# A file that nobody writes: SQLite takes no lock and looks for no log.
UNCHANGING = "mode=ro&immutable=1"


class Place(NamedTuple):
    """A store's place: `display_name` has no password, `file` is None for a database server."""

    url: URL
    display_name: str
    file: Path | None


def parse_place(location: str) -> Place:
    """Return the place of a URL or a file's path.

    Raises InputError `store-url`, MissingExtraError for psycopg.
    """
    if "://" not in location:
        file = expanded(location)
        if str(file).startswith("~"):
            raise _no_store(f"There is no home of '{file.parts[0][1:]}'.")
        file = file.absolute()
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
        "The store is not the URL of a history.",
        id="store-url",
        cause=cause,
        remedy="Give a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE.",
    )


def writer(place: Place) -> Engine:
    """Return the engine to write with; a file is made where there is none.

    Raises StoreError `store-unreachable`, `store-read-only`, `store-full`.
    """
    if place.file is None:
        return _server(place)
    file = place.file.resolve()
    mode = "rw" if file.exists() else "rwc"
    if mode == "rwc":
        _make_folder(file)
    if not _is_writable(file) and not has_log(place):
        return _sqlite(place, UNCHANGING)
    # Readers see whole runs while somebody writes; a commit is on the disk when it returns.
    return _sqlite(place, f"mode={mode}", "journal_mode = WAL", "synchronous = FULL")


def reader(place: Place) -> Engine:
    """Return the engine to read with; no byte of a file changes, nor does one appear beside it."""
    if place.file is None:
        return _server(place)
    if has_log(place):
        # As one who may write, the last to close it would put the log's runs into the file.
        return _sqlite(place, "mode=ro")
    if not _is_writable(place.file.resolve()):
        return _sqlite(place, UNCHANGING)
    # As one who may not, it would leave an empty log there.
    return _sqlite(place, "mode=rw", "query_only = ON")


def onlooker(place: Place, *, with_log: bool = False) -> Engine:
    """Return the engine for a look at a file that may be another program's: it takes no lock.

    Such a look may miss what is in the log alone, and see pages of different moments; `with_log`
    sees neither.
    """
    return _sqlite(place, "mode=ro" if with_log else UNCHANGING, "query_only = ON")


def copied(engine: Engine) -> Engine:
    """Return an engine of a copy in memory, which may be written while the file stays as it is."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with contextlib.closing(engine.raw_connection()) as raw:
        original = raw.driver_connection
        assert isinstance(original, sqlite3.Connection)  # noqa: S101 - the engine is SQLite's
        original.backup(copy)
    copied = create_engine("sqlite://", creator=lambda: copy, poolclass=StaticPool)
    event.listen(copied, "begin", _begin)
    return copied


def is_there(place: Place) -> bool:
    """Return whether there is a file; of a server, that there is one will be seen.

    Raises InputError `store-url` for what is none; StoreError `store-unreachable`.
    """
    if place.file is None:
        return True
    try:
        check_readable(place.file)
    except InputError as error:
        if error.id == "file-not-regular":
            raise _no_store(error.message) from None
        raise fault("store-unreachable", place.display_name, error.cause) from None
    if is_folder(place.file):
        raise _no_store(f"{place.file} is a folder.")
    return is_file(place.file)


def has_log(place: Place) -> bool:
    """Return whether runs may be in SQLite's log beside the file and not in it yet."""
    file = place.file and place.file.resolve()
    return file is not None and is_file(file.with_name(f"{file.name}-wal"))


def _server(place: Place) -> Engine:
    with translated_errors(place.display_name):
        return create_engine(place.url, connect_args={"connect_timeout": 10})


def _sqlite(place: Place, mode: str, *settings: str) -> Engine:
    assert place.file is not None  # noqa: S101 - the callers look
    name = f"{place.file.resolve().as_uri()}?{mode}"

    def connect() -> sqlite3.Connection:
        database = sqlite3.connect(
            name, uri=True, timeout=ONE_TRY, isolation_level=None, check_same_thread=False
        )
        # A schema that somebody sent runs no functions of ours.
        for setting in ("trusted_schema = OFF", "foreign_keys = ON", *settings):
            database.execute(f"PRAGMA {setting}")
        return database

    with translated_errors(place.display_name):
        engine = create_engine("sqlite://", creator=connect)
    event.listen(engine, "begin", _begin)
    return engine


def _make_folder(file: Path) -> None:
    try:
        make_folder(file)
    except OSError as error:
        error_id = "store-full" if error.errno == errno.ENOSPC else "store-read-only"
        raise fault(error_id, str(file), error.strerror or str(error)) from error


def _is_writable(file: Path) -> bool:
    """Return whether SQLite can write: to a folder that it cannot it may not even try to lock."""
    places = (file, file.parent) if file.exists() else (file.parent,)
    return all(os.access(path, os.W_OK, effective_ids=True) for path in places)


def _begin(connection: Connection) -> None:
    # A write takes the lock at once: one that is taken while reading could not be waited for.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextlib.contextmanager
def writing(engine: Engine, display_name: str) -> Iterator[Connection]:
    """Yield a connection whose changes are made all together at the end, or not at all."""
    with (
        translated_errors(display_name),
        engine.execution_options(writes=True).begin() as connection,
    ):
        yield connection


@contextlib.contextmanager
def reading(engine: Engine, display_name: str) -> Iterator[Connection]:
    """Yield a connection that sees one moment of the store, whoever writes meanwhile."""
    # SQLite does so by itself; PostgreSQL would see another moment in each statement.
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with translated_errors(display_name), engine.begin() as connection, bounded(connection):
        yield connection
