"""The version of a store, and the way from one to another."""

from __future__ import annotations

import msgspec
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, func, inspect, select

from torchgauge.errors import StoreError
from torchgauge.history.connection import reading, writing
from torchgauge.history.faults import fault
from torchgauge.history.migrations import LATEST, STEPS
from torchgauge.history.patience import patiently

_TABLE = Table("torchgauge_store", MetaData(), Column("version", Integer, nullable=False))
# Only one connection at a time migrates; any number that no other program uses.
_LOCK = 7_264_110


def ready(engine: Engine, shown: str) -> None:
    """Bring a store to the version that this program reads; a new one gets its tables.

    Raises StoreError `store-newer`, `store-damaged`, and what writing raises.
    """

    def current() -> int:
        with reading(engine, shown) as connection:
            return version(connection, shown)

    if patiently(current) != LATEST:
        patiently(lambda: migrate(engine, shown, LATEST))


def version(connection: Connection, shown: str) -> int:
    """Return the store's version, 0 where there is nothing yet."""
    tables = inspect(connection)
    if not tables.has_table(_TABLE.name):
        if tables.has_table("runs"):
            raise fault("store-damaged", shown, "It has tables of another program.")
        return 0
    # A damaged file may hold anything there, NULL as well.
    found = msgspec.convert(connection.execute(select(_TABLE.c.version)).scalar_one(), int)
    if found > LATEST:
        raise StoreError(
            f"The history '{shown}' has version {found}; this torchgauge reads up to {LATEST}.",
            id="store-newer",
            cause="A newer torchgauge wrote it.",
            remedy="pip install --upgrade torchgauge",
        )
    return found


def migrate(engine: Engine, shown: str, wanted: int) -> None:
    """Bring the store to version `wanted`, up or down, all steps in one transaction.

    Version 0 is an empty database. Raises StoreError as `ready` does.
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
