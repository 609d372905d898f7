"""The tables of a store as this version reads and writes them, and the steps to its versions."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Set
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from torchgauge.errors import StoreError
from torchgauge.history import connection as connections
from torchgauge.history.connection import Place, reading, writing
from torchgauge.history.faults import fault, translated_errors
from torchgauge.history.retention import patiently

metadata = sa.MetaData()


def _run() -> sa.Column[int]:
    return sa.Column("run", sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)


runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.Text, nullable=False, unique=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("created", sa.Text, nullable=False),
    sa.Column("recorded", sa.Text, nullable=False),
    sa.Column("commit", sa.Text, nullable=False),
    sa.Column("branch", sa.Text, nullable=False),
    sa.Column("dirty", sa.Boolean),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("machine", sa.Text, nullable=False),
    sa.Column("cpu", sa.Text, nullable=False),
    sa.Column("gpu", sa.Text, nullable=False),
    sa.Column("torch", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("device", sa.Text, nullable=False),
    sa.Column("precision", sa.Text, nullable=False),
    sa.Column("workload", sa.Text, nullable=False),
    sa.Column("schema", sa.Text, nullable=False),
    sa.Column("profile", sa.LargeBinary, nullable=False),
    sa.Index("runs_by_target", "target", "created"),
)
labels = sa.Table(
    "labels",
    metadata,
    _run(),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)
metrics = sa.Table(
    "metrics",
    metadata,
    _run(),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("how", sa.Text, nullable=False),
    sa.Column("value", sa.Float(53), nullable=False),
    sa.Column("low", sa.Float(53)),
    sa.Column("high", sa.Float(53)),
    sa.Column("scope", sa.Text),
    sqlite_with_rowid=False,
)
yardsticks = sa.Table(
    "yardsticks",
    metadata,
    _run(),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("seconds", sa.Float(53), nullable=False),
    sqlite_with_rowid=False,
)
layers = sa.Table(
    "layers",
    metadata,
    _run(),
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("value", sa.Float(53), nullable=False),
    sqlite_with_rowid=False,
)
windows = sa.Table(
    "windows",
    metadata,
    sa.Column("monitor", sa.Text, primary_key=True),
    sa.Column("series", sa.Text, primary_key=True),
    sa.Column("labels", sa.Text, primary_key=True),
    sa.Column("process", sa.Text, primary_key=True),
    sa.Column("end", sa.Float(53), primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.Index("windows_by_end", "end"),
    sqlite_with_rowid=False,
)


class Migration(NamedTuple):
    """What brings a store to the next version, and back without losing a run."""

    up: Callable[[sa.Connection], object]
    down: Callable[[sa.Connection], object]


# From one version to the next. Once a version is released its step is never edited: the first then
# holds the tables as they are now, and the next change is the next step.
STEPS = (Migration(metadata.create_all, metadata.drop_all),)
LATEST = len(STEPS)

_TABLE = sa.Table(
    "torchgauge_store", sa.MetaData(), sa.Column("version", sa.Integer, nullable=False)
)
# Only one connection at a time migrates; any number that no other program uses.
_LOCK = 7_264_110


def to_write(place: Place) -> sa.Engine:
    """Return a store in the version that this program reads; a new one gets its tables.

    Raises InputError `store-url`; StoreError `store-newer`, `store-damaged`, and what writing
    raises.
    """
    if connections.is_there(place):
        _check_is_history(place)
    engine = connections.writer(place)
    with _dispose_on_error(engine):
        if _current(engine, place.display_name) != LATEST:
            patiently(lambda: migrate(engine, place.display_name, LATEST))
    return engine


def to_read(place: Place) -> sa.Engine:
    """Return a store to read from, which stays as it is: of an older one a copy is brought up.

    Raises InputError `store-url`; StoreError `store-missing`, `store-older`, `store-newer`,
    `store-damaged`, and what reading raises.
    """
    if not connections.is_there(place):
        raise _missing(place.display_name)
    _check_is_history(place)
    engine = connections.reader(place)
    with _dispose_on_error(engine):
        store_version = _current(engine, place.display_name)
        if not store_version:
            raise _missing(place.display_name)
        if store_version == LATEST:
            return engine
        if place.file is None:
            raise _older(place.display_name, store_version)
        with translated_errors(place.display_name):
            copy = connections.copied(engine)
    engine.dispose()
    migrate(copy, place.display_name, LATEST)
    return copy


@contextlib.contextmanager
def _dispose_on_error(engine: sa.Engine) -> Iterator[None]:
    """Close the connections where the block raises."""
    try:
        yield
    except BaseException:  # Ctrl-C as well must leave no connection open
        engine.dispose()
        raise


def _check_is_history(place: Place) -> None:
    """Raise StoreError `store-damaged` for another program's file, of which nothing is touched."""
    if place.file is None:
        return
    with contextlib.suppress(StoreError):
        if _version_once(connections.onlooker(place), place.display_name):
            return
    # What makes it ours may be in the log, and pages in the file may be of different moments.
    _version_once(
        connections.onlooker(place, with_log=connections.has_log(place)), place.display_name
    )


def _missing(display_name: str) -> StoreError:
    return StoreError(
        f"There is no history at '{display_name}'.",
        id="store-missing",
        cause="No run was added yet, or it is elsewhere.",
        remedy="Say where it is (--store), or save a run and add it:\n"
        "torchgauge profile TARGET --output-dir results\n"
        f"torchgauge history add --store {shlex.quote(display_name)} results/profile.json",
    )


def _older(display_name: str, version: int) -> StoreError:
    return StoreError(
        f"The history '{display_name}' has version {version}; "
        f"this torchgauge reads version {LATEST}.",
        id="store-older",
        cause="An older torchgauge wrote it, and reading changes nothing.",
        remedy="The next `torchgauge history add RUN.json` brings it up to date; no run is lost.",
    )


def _version_once(engine: sa.Engine, display_name: str) -> int:
    try:
        return _current(engine, display_name)
    finally:
        engine.dispose()


def _current(engine: sa.Engine, display_name: str) -> int:
    def current() -> int:
        with reading(engine, display_name) as connection:
            return version(connection, display_name)

    return patiently(current)


def version(connection: sa.Connection, display_name: str) -> int:
    """Return the store's version, 0 where there is nothing yet.

    Raises StoreError `store-newer`; `store-damaged` where there are tables of another program, or
    not those of the version.
    """
    inspector = sa.inspect(connection)
    names = set(inspector.get_table_names())
    if _TABLE.name not in names:
        if _is_foreign(connection, names):
            raise fault("store-damaged", display_name, "It is another program's.")
        return 0
    numbers = connection.execute(sa.select(_TABLE.c.version)).scalars().all()
    # A damaged file may hold anything there, NULL as well.
    number = msgspec.convert(numbers[0] if len(numbers) == 1 else None, int)
    if number == LATEST:
        _check_tables(inspector, display_name)
    if number < 1:
        raise fault("store-damaged", display_name, f"It says that its version is {number}.")
    if number > LATEST:
        raise StoreError(
            f"The history '{display_name}' has version {number}; "
            f"this torchgauge reads up to {LATEST}.",
            id="store-newer",
            cause="A newer torchgauge wrote it.",
            remedy="pip install --upgrade torchgauge-profiler",
        )
    return number


def _is_foreign(connection: sa.Connection, tables: Set[str]) -> bool:
    """Return whether a database other than a history holds anything of another program."""
    if connection.dialect.name != "sqlite":
        # A server's may be shared with others, as long as no names collide.
        return bool(tables & metadata.tables.keys())
    marks = ("SELECT count(*) FROM sqlite_master", "PRAGMA application_id", "PRAGMA user_version")
    return any(connection.exec_driver_sql(mark).scalar_one() for mark in marks)


def _check_tables(inspector: sa.Inspector, display_name: str) -> None:
    """Raise StoreError `store-damaged` where a table is missing or lacks a column."""
    existing_columns = {
        name: {column["name"] for column in columns}
        for (_, name), columns in inspector.get_multi_columns(
            filter_names=[*metadata.tables]
        ).items()
    }
    for name, table in metadata.tables.items():
        if lacking := {column.name for column in table.columns} - existing_columns.get(name, set()):
            cause = f"Its table {name} lacks {', '.join(sorted(lacking))}."
            raise fault("store-damaged", display_name, cause)


def migrate(engine: sa.Engine, display_name: str, target_version: int) -> None:
    """Bring the store to version `target_version`, up or down, all steps in one transaction.

    Version 0 is an empty database. Raises StoreError as `to_write` does.
    """
    with writing(engine, display_name) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        now = version(connection, display_name)
        if now == target_version:  # another process was first
            return
        for step in STEPS[now:target_version]:
            step.up(connection)
        for step in reversed(STEPS[target_version:now]):
            step.down(connection)
        if not now:
            _TABLE.create(connection)
            connection.execute(_TABLE.insert().values(version=target_version))
        elif target_version:
            # Made anew, the table would seem empty to who waits to read it.
            connection.execute(_TABLE.update().values(version=target_version))
        else:
            _TABLE.drop(connection)
