"""The tables of a store as this version reads and writes them; `migrations/` makes them."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

metadata = MetaData()


def _run() -> Column[int]:
    return Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)


runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", Text, nullable=False, unique=True),
    Column("digest", Text, nullable=False, unique=True),
    Column("created", Text, nullable=False),
    Column("recorded", Text, nullable=False),
    Column("commit", Text, nullable=False),
    Column("branch", Text, nullable=False),
    Column("dirty", Boolean),
    Column("message", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("cpu", Text, nullable=False),
    Column("gpu", Text, nullable=False),
    Column("torch", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("precision", Text, nullable=False),
    Column("workload", Text, nullable=False),
    Column("schema", Text, nullable=False),
    Column("profile", LargeBinary, nullable=False),
    Index("runs_by_target", "target", "created"),
)
labels = Table(
    "labels",
    metadata,
    _run(),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)
metrics = Table(
    "metrics",
    metadata,
    _run(),
    Column("name", Text, primary_key=True),
    Column("unit", Text, nullable=False),
    Column("how", Text, nullable=False),
    Column("value", Float(53), nullable=False),
    Column("low", Float(53)),
    Column("high", Float(53)),
    Column("scope", Text),
    sqlite_with_rowid=False,
)
yardsticks = Table(
    "yardsticks",
    metadata,
    _run(),
    Column("kind", Text, primary_key=True),
    Column("seconds", Float(53), nullable=False),
    sqlite_with_rowid=False,
)
layers = Table(
    "layers",
    metadata,
    _run(),
    Column("path", Text, primary_key=True),
    Column("metric", Text, primary_key=True),
    Column("value", Float(53), nullable=False),
    sqlite_with_rowid=False,
)
windows = Table(
    "windows",
    metadata,
    Column("monitor", Text, primary_key=True),
    Column("series", Text, primary_key=True),
    Column("labels", Text, primary_key=True),
    Column("process", Text, primary_key=True),
    Column("end", Float(53), primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Index("windows_by_end", "end"),
    sqlite_with_rowid=False,
)
