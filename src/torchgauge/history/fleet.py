"""A large history in parts: its targets, the series of a target, the newest runs of a series.

Nothing here reads all runs: targets are counted in the index by target, everything else is of one
target, and where it reads records of runs, of the newest ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Select, func, literal, select, tuple_

from torchgauge.history.faults import rows
from torchgauge.history.series import SERIES_FIELDS, series_of_runs, yardsticks_of_runs
from torchgauge.history.store import FACTS, read_runs
from torchgauge.history.tables import metrics, runs
from torchgauge.history.trend import CORRECTED
from torchgauge.records.run import Run
from torchgauge.records.trend import TrendSeries

_INDEX_ENTRY = 20  # bytes that a run has at least in the index by target
_FIGURE = 8
_IDENTITY = [runs.c[name] for name in SERIES_FIELDS]


class TargetRuns(NamedTuple):
    """A target of the history: `newest` is when its last run was measured (ISO 8601, UTC)."""

    target: str
    runs: int
    newest: str


class SeriesRuns(NamedTuple):
    """A series of the history: `identity` has the values of `SERIES_FIELDS`."""

    identity: tuple[str, ...]
    runs: int
    newest: str

    @property
    def facts(self) -> dict[str, str]:
        """The identity by the names of its fields."""
        return dict(zip(SERIES_FIELDS, self.identity, strict=True))


def key(*texts: str) -> str:
    """Return a short name for texts of any content, such as the identity of a series."""
    return hashlib.sha256("\0".join(texts).encode(errors="surrogatepass")).hexdigest()[:16]


def state(connection: Connection) -> str:
    """Return a text that changes whenever a run is added or removed."""
    count = connection.execute(select(func.count()).select_from(runs)).scalar_one()
    newest = select(runs.c.id, runs.c.uuid).order_by(runs.c.id.desc()).limit(1)
    return key(str(count), *map(str, connection.execute(newest).one_or_none() or ()))


def targets(connection: Connection) -> list[TargetRuns]:
    """Return the targets, the one with the newest run first."""
    query = select(runs.c.target, func.count(), func.max(runs.c.created)).group_by(runs.c.target)
    counted = [
        msgspec.convert(tuple(row), TargetRuns) for row in rows(connection, query, _INDEX_ENTRY)
    ]
    return sorted(counted, key=lambda entry: (entry.newest, entry.target), reverse=True)


def newest_identity(connection: Connection, target: str) -> tuple[str, ...]:
    """Return the identity of the series of a target's newest run; () where it has no runs."""
    query = select(*_IDENTITY).where(runs.c.target == target)
    row = connection.execute(_newest_first(query).limit(1)).one_or_none()
    return () if row is None else msgspec.convert(tuple(row), tuple[str, ...])


def series_of_target(connection: Connection, target: str) -> list[SeriesRuns]:
    """Return the series of a target, the one with the newest run first."""
    query = (
        select(*_IDENTITY, func.count(), func.max(runs.c.created))
        .where(runs.c.target == target)
        .group_by(*_IDENTITY)
    )
    counted = [
        msgspec.convert((tuple(row[:-2]), row[-2], row[-1]), SeriesRuns)
        for row in rows(connection, query, _INDEX_ENTRY)
    ]
    return sorted(counted, key=lambda entry: (entry.newest, entry.identity), reverse=True)


def newest_runs(connection: Connection, identity: tuple[str, ...], limit: int) -> dict[int, Run]:
    """Return the newest runs of a series by their numbers, oldest first, without labels."""
    if not identity:
        return {}
    query = _newest_first(_of_series(select(runs.c.id, *FACTS), identity)).limit(limit)
    return dict(reversed(list(read_runs(connection, query, {}))))


def metric_names(connection: Connection, numbers: list[int]) -> list[str]:
    """Return the headline figures that any of some runs has."""
    query = select(metrics.c.name).where(metrics.c.run.in_(numbers)).distinct()
    return sorted(msgspec.convert(connection.scalars(query).all(), list[str]))


class Place(NamedTuple):
    """A run's place in the order of a series: when it was measured, and its number."""

    created: str
    number: int


FIRST = Place("", 0)


def values(
    connection: Connection, identity: tuple[str, ...], metric: str, after: Place, limit: int
) -> list[tuple[Place, float | None]]:
    """Return a figure of the runs of a series after a place, oldest first; None of runs without."""
    query = (
        _of_series(
            select(runs.c.created, runs.c.id, metrics.c.value).join_from(
                runs,
                metrics,
                (metrics.c.run == runs.c.id) & (metrics.c.name == metric),
                isouter=True,
            ),
            identity,
        )
        .where(tuple_(runs.c.created, runs.c.id) > tuple_(*map(literal, after)))
        .order_by(runs.c.created, runs.c.id)
        .limit(limit)
    )
    figures = [((row[0], row[1]), row[2]) for row in rows(connection, query, _FIGURE)]
    return msgspec.convert(figures, list[tuple[Place, float | None]])


def newest_points(
    connection: Connection,
    identity: tuple[str, ...],
    names: Sequence[str],
    limit: int,
    layer: str | None = None,
) -> tuple[list[TrendSeries], dict[str, dict[str, float]]]:
    """Return figures of the newest runs of a series, as `read_series` does, and their yardsticks.

    With these `trend.with_correction` and `with_changes` find what `trend` finds.
    """
    chosen = newest_runs(connection, identity, limit)
    yardsticks = yardsticks_of_runs(connection, chosen) if CORRECTED & set(names) else {}
    return series_of_runs(connection, chosen, names, layer), yardsticks


def _of_series(query: Select[Any], identity: tuple[str, ...]) -> Select[Any]:
    return query.where(
        *(column == value for column, value in zip(_IDENTITY, identity, strict=True))
    )


def _newest_first(query: Select[Any]) -> Select[Any]:
    return query.order_by(runs.c.created.desc(), runs.c.id.desc())
