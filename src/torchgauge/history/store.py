"""A history: runs are added whole or not at all, found, read back and removed."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Engine, Select, delete, exists, select
from sqlalchemy.exc import IntegrityError

from torchgauge.errors import InputError, StoreError
from torchgauge.history import connection as connections
from torchgauge.history import content
from torchgauge.history.faults import rows, translated_errors
from torchgauge.history.retention import patiently
from torchgauge.history.tables import (
    labels,
    layers,
    metrics,
    migrate,
    runs,
    to_read,
    to_write,
    yardsticks,
)
from torchgauge.records.profile import Profile
from torchgauge.records.run import Entry, Run

T = TypeVar("T")

FACTS = [column for column in runs.c if column.name not in ("id", "profile")]
BATCH_SIZE = 500  # rows of one statement
# Bytes that a row has at least in a file: its columns' lengths, and texts that are never empty.
_LABEL, _RUN = 4, 100


class Selection(NamedTuple):
    """Which runs: all given conditions must hold. `target` may have wildcards, `machine` be short.

    `since` is an ISO 8601 time in UTC of one width, as `content.moment` returns.
    """

    target: str | None = None
    branch: str | None = None
    machine: str | None = None
    since: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


ALL_RUNS = Selection()


class Store:
    """An open history; a context manager that closes it."""

    def __init__(self, place: connections.Place, engine: Engine, *, writes: bool) -> None:
        self.display_name = place.display_name
        self.file = place.file
        self._place = place
        self._engine = engine
        self._writes = writes

    @classmethod
    def open(cls, location: str, *, create: bool = True) -> Self:
        """Open the history at a URL or file, in the version that this program reads.

        Without `create` it is opened to be read, and nothing of it changes before something is
        written to it.

        Raises InputError `store-url`; StoreError `store-missing` where it is not there and `create`
        is False, `store-older` on a server then, `store-unreachable`, `store-damaged`,
        `store-newer`, `store-busy`, `store-read-only`, `store-full`; MissingExtraError.
        """
        place = connections.parse_place(location)
        return cls(place, to_write(place) if create else to_read(place), writes=create)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections."""
        self._engine.dispose()

    def _to_write(self) -> Engine:
        if not self._writes:
            engine = to_write(self._place)
            self._engine.dispose()
            self._engine, self._writes = engine, True
        return self._engine

    def add(self, entry: Entry) -> tuple[str, bool]:
        """Save a run and return its uuid, and whether it is new: the same record is saved once.

        It is on the disk when this returns, all of it. Waits for its turn at most
        `patience.LONGEST_WAIT` seconds. Raises StoreError.
        """
        named = [{"key": key, "value": value} for key, value in entry.run.labels.items()]
        parts = (
            (labels, named),
            (metrics, content.metric_rows(entry.profile)),
            (layers, content.layer_figures(entry.profile)),
            (yardsticks, content.yardstick_rows(entry.profile)),
        )
        row = _row(entry)
        engine, tries = self._to_write(), 0

        def write() -> tuple[str, bool]:
            nonlocal tries
            tries += 1
            with connections.writing(engine, self.display_name) as connection:
                existing_uuid = _saved_uuid(connection, entry.run.digest)
                if existing_uuid is not None:
                    # A connection may break after its commit: then the try before was ours.
                    return existing_uuid, tries > 1 and existing_uuid == entry.run.uuid
                number = connection.execute(runs.insert().values(row)).inserted_primary_key
                assert number is not None  # noqa: S101 - both databases return it
                for table, rows in parts:
                    if rows:
                        connection.execute(table.insert(), [{"run": number[0], **r} for r in rows])
            return entry.run.uuid, True

        return patiently(lambda: _retry_once(write))

    def runs(self, selection: Selection = ALL_RUNS) -> list[Run]:
        """Return the runs, oldest first."""
        with connections.reading(self._engine, self.display_name) as connection:
            return [run for _, run in select_runs(connection, selection)]

    def find(self, name: str) -> Run:
        """Return the run whose uuid begins with `name`, or the newest for "latest".

        Raises InputError `run-unknown`, `run-ambiguous`.
        """
        all_runs = self.runs()
        if name == "latest":
            matches = all_runs[-1:]
        else:
            matches = [run for run in all_runs if run.uuid.startswith(name.lower())]
        if len(matches) == 1:
            return matches[0]
        raise InputError(
            f"{'No run' if not matches else 'More than one run'} of the history is '{name}'.",
            id="run-ambiguous" if matches else "run-unknown",
            cause=", ".join(run.uuid for run in matches[:3])
            or f"'{self.display_name}' holds no such run.",
            remedy="Give the beginning of a uuid of `torchgauge history list`, or latest.",
        )

    def profile(self, uuid: str) -> Profile:
        """Return a run's whole record. Raises InputError `run-unknown`, RecordError."""
        with connections.reading(self._engine, self.display_name) as connection:
            query = select(runs.c.profile).where(runs.c.uuid == uuid)
            data = connection.execute(query).scalar_one_or_none()
        if data is None:
            raise InputError(f"The history holds no run {uuid}.", id="run-unknown")
        return content.unpacked(data, f"run {uuid}")

    def entries(self, selection: Selection = ALL_RUNS) -> Iterator[Entry]:
        """Yield the runs with their records, oldest first, one record in memory at a time."""
        for run in self.runs(selection):
            yield Entry(run=run, profile=self.profile(run.uuid))

    def label(
        self, uuid: str, new_labels: Mapping[str, str], *, removed: Iterable[str] = ()
    ) -> None:
        """Attach labels to a run, in place of those with the same keys, and take others away.

        Raises InputError `run-unknown`, `label-unknown` for one to take away that it does not have;
        then none is changed. Raises StoreError.
        """
        removed_keys = set(removed)

        def replace(connection: Connection) -> None:
            query = select(runs.c.id).where(runs.c.uuid == uuid)
            number = connection.execute(query).scalar_one_or_none()
            if number is None:
                raise InputError(f"The history holds no run {uuid}.", id="run-unknown")
            of_run = labels.c.run == number
            keys = set(connection.execute(select(labels.c.key).where(of_run)).scalars())
            if missing := removed_keys - keys:
                raise _label_unknown(uuid, missing, keys)
            replaced = [*removed_keys, *new_labels]
            connection.execute(delete(labels).where(of_run, labels.c.key.in_(replaced)))
            added = [{"run": number, "key": k, "value": v} for k, v in new_labels.items()]
            if added:
                connection.execute(labels.insert(), added)

        self.write(replace)

    def remove(self, uuids: Iterable[str]) -> int:
        """Remove runs with all that belongs to them; return how many there were."""
        uuid_list = list(uuids)

        def removed(connection: Connection) -> int:
            return sum(
                connection.execute(
                    delete(runs).where(runs.c.uuid.in_(uuid_list[start : start + BATCH_SIZE]))
                ).rowcount
                for start in range(0, len(uuid_list), BATCH_SIZE)
            )

        return self.write(removed)

    def shrink(self) -> None:
        """Give the space of removed runs back to the disk; PostgreSQL does so by itself."""
        if self.file is not None:
            with (
                translated_errors(self.display_name),
                contextlib.closing(self._to_write().raw_connection()) as raw,
            ):
                raw.cursor().execute("VACUUM")

    def read(self, query: Callable[[Connection], Any]) -> Any:
        """Return what `query` returns for a connection that sees one moment of the store."""
        with connections.reading(self._engine, self.display_name) as connection:
            return query(connection)

    def write(self, change: Callable[[Connection], T]) -> T:
        """Make a change, all of it or nothing, and return what `change` returns; it may run twice.

        Raises StoreError.
        """
        engine = self._to_write()

        def write() -> T:
            with connections.writing(engine, self.display_name) as connection:
                return change(connection)

        return patiently(write)

    def migrate(self, version: int) -> None:
        """Bring the store to an older version (or back), for an older torchgauge; no run is lost.

        Raises StoreError.
        """
        engine = self._to_write()
        patiently(lambda: migrate(engine, self.display_name, version))


def select_runs(connection: Connection, selection: Selection = ALL_RUNS) -> list[tuple[int, Run]]:
    """Return runs with their numbers in the tables, oldest first."""
    query = select(runs.c.id, *FACTS).where(*_conditions(selection)).order_by(runs.c.created)
    named: dict[int, dict[str, str]] = {}
    for number, key, value in rows(connection, select(labels), _LABEL):
        named.setdefault(number, {})[key] = value
    return [
        (number, run)
        for number, run in read_runs(connection, query.order_by(runs.c.id), named)
        if selection.target is None or fnmatch.fnmatchcase(run.target, selection.target)
    ]


def read_runs(
    connection: Connection, query: Select[Any], labels_by_run: Mapping[int, dict[str, str]]
) -> Iterator[tuple[int, Run]]:
    """Yield the runs of a query of `runs.c.id` and `FACTS`, each with its number."""
    names = [str(column.name) for column in FACTS]
    for number, *facts in rows(connection, query, _RUN):
        row = dict(zip(names, facts, strict=True)) | {"labels": labels_by_run.get(number, {})}
        yield number, msgspec.convert(row, Run)


def _conditions(selection: Selection) -> Iterator[ColumnElement[bool]]:
    if selection.branch is not None:
        yield runs.c.branch == selection.branch
    if selection.machine is not None:
        yield runs.c.machine.startswith(selection.machine, autoescape=True)
    if selection.since is not None:
        yield runs.c.created >= selection.since
    for key, value in selection.labels:
        label_match = (labels.c.run == runs.c.id, labels.c.key == key, labels.c.value == value)
        yield exists().where(*label_match)


def _label_unknown(uuid: str, missing: set[str], keys: set[str]) -> InputError:
    return InputError(
        f"Run {uuid[:8]} has no label {', '.join(sorted(missing))}.",
        id="label-unknown",
        cause=f"Its labels are {', '.join(sorted(keys))}." if keys else "It has no labels.",
    )


def _row(entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(entry.run)
    del row["labels"]
    return row | {"profile": content.packed(entry.profile)}


def _saved_uuid(connection: Connection, digest: str) -> str | None:
    query = select(runs.c.uuid).where(runs.c.digest == digest)
    return connection.execute(query).scalar_one_or_none()


def _retry_once(write: Callable[[], tuple[str, bool]]) -> tuple[str, bool]:
    """Write; where another writer saved the same record at the same moment, find that."""
    try:
        return write()
    except StoreError as error:
        if isinstance(error.__context__, IntegrityError):
            return write()
        raise
