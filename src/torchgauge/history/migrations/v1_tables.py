"""Version 1: runs with what is asked of them in columns, and windows of monitors."""

from __future__ import annotations

from sqlalchemy import Connection, text

_RUN = "run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE"
_RUNS = """\
uuid TEXT NOT NULL UNIQUE, digest TEXT NOT NULL UNIQUE, created TEXT NOT NULL,
recorded TEXT NOT NULL, "commit" TEXT NOT NULL, branch TEXT NOT NULL, dirty BOOLEAN,
message TEXT NOT NULL, machine TEXT NOT NULL, cpu TEXT NOT NULL, gpu TEXT NOT NULL,
torch TEXT NOT NULL, target TEXT NOT NULL, model TEXT NOT NULL, device TEXT NOT NULL,
"precision" TEXT NOT NULL, workload TEXT NOT NULL, "schema" TEXT NOT NULL"""


def up(connection: Connection) -> None:
    """Make the tables."""
    lite = connection.dialect.name == "sqlite"
    key = "INTEGER NOT NULL PRIMARY KEY" if lite else "SERIAL PRIMARY KEY"
    blob = "BLOB" if lite else "BYTEA"
    real = "FLOAT" if lite else "DOUBLE PRECISION"
    flat = "WITHOUT ROWID" if lite else ""
    for statement in (
        f"CREATE TABLE runs (id {key}, {_RUNS}, profile {blob} NOT NULL)",
        "CREATE INDEX runs_by_target ON runs (target, created)",
        f"CREATE TABLE labels ({_RUN}, key TEXT NOT NULL, value TEXT NOT NULL, "
        f"PRIMARY KEY (run, key)) {flat}",
        f"CREATE TABLE metrics ({_RUN}, name TEXT NOT NULL, unit TEXT NOT NULL, "
        f"how TEXT NOT NULL, value {real} NOT NULL, low {real}, high {real}, scope TEXT, "
        f"PRIMARY KEY (run, name)) {flat}",
        f"CREATE TABLE yardsticks ({_RUN}, kind TEXT NOT NULL, seconds {real} NOT NULL, "
        f"PRIMARY KEY (run, kind)) {flat}",
        f"CREATE TABLE layers ({_RUN}, path TEXT NOT NULL, metric TEXT NOT NULL, "
        f"value {real} NOT NULL, PRIMARY KEY (run, path, metric)) {flat}",
        "CREATE TABLE windows (monitor TEXT NOT NULL, series TEXT NOT NULL, "
        f'labels TEXT NOT NULL, process TEXT NOT NULL, "end" {real} NOT NULL, '
        f"data {blob} NOT NULL, "
        f'PRIMARY KEY (monitor, series, labels, process, "end")) {flat}',
        'CREATE INDEX windows_by_end ON windows ("end")',
    ):
        connection.execute(text(statement))


def down(connection: Connection) -> None:
    """Remove the tables, and with them every run."""
    for table in ("windows", "layers", "yardsticks", "metrics", "labels", "runs"):
        connection.execute(text(f"DROP TABLE {table}"))
