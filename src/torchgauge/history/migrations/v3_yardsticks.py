"""Version 3: reference work of runs, and what the intervals are of, taken from the records."""

from __future__ import annotations

from sqlalchemy import Connection, text

from torchgauge.history.content import metric_rows, unpacked, yardstick_rows

_YARDSTICK = "INSERT INTO yardsticks (run, kind, seconds) VALUES (:run, :kind, :seconds)"
_SCOPE = "UPDATE metrics SET scope = :scope WHERE run = :run AND name = :name"


def up(connection: Connection) -> None:
    """Make the table and the column and fill them, one run in memory at a time."""
    lite = connection.dialect.name == "sqlite"
    real, flat = ("FLOAT", "WITHOUT ROWID") if lite else ("DOUBLE PRECISION", "")
    connection.execute(text("ALTER TABLE metrics ADD COLUMN scope TEXT"))
    connection.execute(
        text(
            "CREATE TABLE yardsticks (run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, "
            f"kind TEXT NOT NULL, seconds {real} NOT NULL, PRIMARY KEY (run, kind)) {flat}"
        )
    )
    for run in connection.scalars(text("SELECT id FROM runs")).all():
        result = connection.execute(text("SELECT profile FROM runs WHERE id = :id"), {"id": run})
        profile = unpacked(result.scalar_one(), f"run {run}")
        if rows := [{"run": run, **row} for row in yardstick_rows(profile)]:
            connection.execute(text(_YARDSTICK), rows)
        for row in metric_rows(profile):
            if row["scope"] is not None:
                scope = {"run": run, "name": row["name"], "scope": row["scope"]}
                connection.execute(text(_SCOPE), scope)


def down(connection: Connection) -> None:
    """Remove both: the records still hold them."""
    connection.execute(text("DROP TABLE yardsticks"))
    connection.execute(text("ALTER TABLE metrics DROP COLUMN scope"))
