"""The version of a store, and the way from one to another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Set

import msgspec
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Inspector,
    Integer,
    MetaData,
    Table,
    func,
    inspect,
    select,
)

from torchgauge.errors import StoreError
from torchgauge.history import connection as connections
from torchgauge.history.connection import Place, reading, writing
from torchgauge.history.faults import fault, told
from torchgauge.history.migrations import LATEST, STEPS
from torchgauge.history.patience import patiently
from torchgauge.history.tables import metadata

_TABLE = Table("torchgauge_store", MetaData(), Column("version", Integer, nullable=False))
# Only one connection at a time migrates; any number that no other program uses.
_LOCK = 7_264_110


def to_write(where: Place) -> Engine:
    """Return a store in the version that this program reads; a new one gets its tables.

    Raises InputError `store-url`; StoreError `store-newer`, `store-damaged`, and what writing
    raises.
    """
    if connections.is_there(where):
        _check_ours(where)
    engine = connections.engine(where)
    with _given_back(engine):
        if _current(engine, where.shown) != LATEST:
            patiently(lambda: migrate(engine, where.shown, LATEST))
    return engine


def to_read(where: Place) -> Engine:
    """Return a store to read from, which stays as it is: of an older one a copy is brought up.

    Raises InputError `store-url`; StoreError `store-missing`, `store-older`, `store-newer`,
    `store-damaged`, and what reading raises.
    """
    if not connections.is_there(where):
        raise _missing(where.shown)
    _check_ours(where)
    engine = connections.reader(where)
    with _given_back(engine):
        found = _current(engine, where.shown)
        if not found:
            raise _missing(where.shown)
        if found == LATEST:
            return engine
        if where.file is None:
            raise _older(where.shown, found)
        with told(where.shown):
            copy = connections.copied(engine)
    engine.dispose()
    migrate(copy, where.shown, LATEST)
    return copy


@contextlib.contextmanager
def _given_back(engine: Engine) -> Iterator[None]:
    """Close the connections where the block raises."""
    try:
        yield
    except BaseException:
        engine.dispose()
        raise


def _check_ours(where: Place) -> None:
    """Raise StoreError `store-damaged` for another program's file, of which nothing is touched."""
    if where.file is None:
        return
    with contextlib.suppress(StoreError):
        if _seen(connections.onlooker(where), where.shown):
            return
    # What makes it ours may be in the log, and pages in the file may be of different moments.
    _seen(connections.onlooker(where, with_log=connections.has_log(where)), where.shown)


def _missing(shown: str) -> StoreError:
    return StoreError(
        f"There is no history at '{shown}'.",
        id="store-missing",
        cause="No run was added yet, or it is elsewhere.",
        remedy="Add one with `torchgauge history add RUN.json`, or say where it is: --store.",
    )


def _older(shown: str, version: int) -> StoreError:
    return StoreError(
        f"The history '{shown}' has version {version}; this torchgauge reads version {LATEST}.",
        id="store-older",
        cause="An older torchgauge wrote it, and reading changes nothing.",
        remedy="The next `torchgauge history add` brings it up to date; no run is lost.",
    )


def _seen(engine: Engine, shown: str) -> int:
    try:
        return _current(engine, shown)
    finally:
        engine.dispose()


def _current(engine: Engine, shown: str) -> int:
    def current() -> int:
        with reading(engine, shown) as connection:
            return version(connection, shown)

    return patiently(current)


def version(connection: Connection, shown: str) -> int:
    """Return the store's version, 0 where there is nothing yet.

    Raises StoreError `store-newer`; `store-damaged` where there are tables of another program, or
    not those of the version.
    """
    found = inspect(connection)
    names = set(found.get_table_names())
    if _TABLE.name not in names:
        if _is_foreign(connection, names):
            raise fault("store-damaged", shown, "It is another program's.")
        return 0
    numbers = connection.execute(select(_TABLE.c.version)).scalars().all()
    # A damaged file may hold anything there, NULL as well.
    number = msgspec.convert(numbers[0] if len(numbers) == 1 else None, int)
    if number == LATEST:
        _check_tables(found, shown)
    if number < 1:
        raise fault("store-damaged", shown, f"It says that its version is {number}.")
    if number > LATEST:
        raise StoreError(
            f"The history '{shown}' has version {number}; this torchgauge reads up to {LATEST}.",
            id="store-newer",
            cause="A newer torchgauge wrote it.",
            remedy="pip install --upgrade torchgauge",
        )
    return number


def _is_foreign(connection: Connection, tables: Set[str]) -> bool:
    """Return whether a database that is no history holds anything of another program."""
    if connection.dialect.name != "sqlite":
        # A server's may be shared with others, as long as no names collide.
        return bool(tables & metadata.tables.keys())
    marks = ("SELECT count(*) FROM sqlite_master", "PRAGMA application_id", "PRAGMA user_version")
    return any(connection.exec_driver_sql(mark).scalar_one() for mark in marks)


def _check_tables(found: Inspector, shown: str) -> None:
    """Raise StoreError `store-damaged` where a table is none, or lacks what is read of it."""
    known = {
        name: {column["name"] for column in columns}
        for (_, name), columns in found.get_multi_columns(filter_names=[*metadata.tables]).items()
    }
    for name, table in metadata.tables.items():
        if lacking := {column.name for column in table.columns} - known.get(name, set()):
            cause = f"Its table {name} lacks {', '.join(sorted(lacking))}."
            raise fault("store-damaged", shown, cause)


def migrate(engine: Engine, shown: str, wanted: int) -> None:
    """Bring the store to version `wanted`, up or down, all steps in one transaction.

    Version 0 is an empty database. Raises StoreError as `to_write` does.
    """
    with writing(engine, shown) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        now = version(connection, shown)
        if now == wanted:  # another process was first
            return
        for step in STEPS[now:wanted]:
            step.up(connection)
        for step in reversed(STEPS[wanted:now]):
            step.down(connection)
        if not now:
            _TABLE.create(connection)
            connection.execute(_TABLE.insert().values(version=wanted))
        elif wanted:
            # Made anew, the table would seem empty to who waits to read it.
            connection.execute(_TABLE.update().values(version=wanted))
        else:
            _TABLE.drop(connection)
