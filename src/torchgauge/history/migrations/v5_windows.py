"""Version 5: windows of monitors, one row for each series, process and interval."""

from __future__ import annotations

from sqlalchemy import Connection, text


def up(connection: Connection) -> None:
    """Make the table, which is empty: no version before has recorded any."""
    lite = connection.dialect.name == "sqlite"
    real, data, flat = (
        ("FLOAT", "BLOB", "WITHOUT ROWID") if lite else ("DOUBLE PRECISION", "BYTEA", "")
    )
    connection.execute(
        text(
            "CREATE TABLE windows (monitor TEXT NOT NULL, series TEXT NOT NULL, "
            "labels TEXT NOT NULL, process TEXT NOT NULL, "
            f'"end" {real} NOT NULL, data {data} NOT NULL, '
            f'PRIMARY KEY (monitor, series, labels, process, "end")) {flat}'
        )
    )
    connection.execute(text('CREATE INDEX windows_by_end ON windows ("end")'))


def down(connection: Connection) -> None:
    """Remove the table with the windows, which an older torchgauge cannot hold; runs stay."""
    connection.execute(text("DROP TABLE windows"))
