"""Version 2: figures of layers in columns, taken from the records that are there."""

from __future__ import annotations

from sqlalchemy import Connection, text

from torchgauge.history.content import layer_figures, unpacked

_INSERT = "INSERT INTO layers (run, path, metric, value) VALUES (:run, :path, :metric, :value)"


def up(connection: Connection) -> None:
    """Make the table and fill it, one run in memory at a time."""
    lite = connection.dialect.name == "sqlite"
    real, flat = ("FLOAT", "WITHOUT ROWID") if lite else ("DOUBLE PRECISION", "")
    connection.execute(
        text(
            "CREATE TABLE layers (run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, "
            f"path TEXT NOT NULL, metric TEXT NOT NULL, value {real} NOT NULL, "
            f"PRIMARY KEY (run, path, metric)) {flat}"
        )
    )
    for run in connection.scalars(text("SELECT id FROM runs")).all():
        result = connection.execute(text("SELECT profile FROM runs WHERE id = :id"), {"id": run})
        profile = unpacked(result.scalar_one(), f"run {run}")
        if rows := [{"run": run, **row} for row in layer_figures(profile)]:
            connection.execute(text(_INSERT), rows)


def down(connection: Connection) -> None:
    """Remove the table: the records still hold its figures."""
    connection.execute(text("DROP TABLE layers"))
