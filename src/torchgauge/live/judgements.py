"""What alert rules say of the newest runs of a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.analyze.statistics.change_points import SMALLEST
from torchgauge.history import fleet
from torchgauge.history.trend import DEFAULT_METRICS, with_changes, with_correction
from torchgauge.live.history_reader import HistoryReader
from torchgauge.records.trend import Alert, TrendSeries

ANALYZED_RUNS = 300  # the newest ones of a series, in which changes are searched
# What is reported where no file of rules is given: a level that moved for the worse, and stayed.
DEFAULT_RULES = tuple(
    Rule(name="change", kind="change", metric=metric, limit=SMALLEST, unit="ratio")
    for metric in DEFAULT_METRICS
)


class Judgement(NamedTuple):
    """Alerts on a target's newest series.

    Attributes:
        alerts: What is broken.
        judged: How many rules could be judged.
        unjudged: Figures that rules are about and that have too few runs.
    """

    alerts: tuple[Alert, ...]
    judged: int
    unjudged: tuple[str, ...]


def judgement(reader: HistoryReader, target: str, rules: Sequence[Rule]) -> Judgement:
    """Return what the rules say of the series of a target's newest run.

    Raises InputError `alert-unit`, StoreError.
    """
    identity = reader.query(fleet.newest_identity, target)
    broken: list[Alert] = []
    judged, unjudged = 0, []
    by_subject: dict[tuple[str, str | None], list[TrendSeries]] = {}
    for rule in rules:
        subject = (rule.metric, rule.layer)
        if subject not in by_subject:
            by_subject[subject] = analyzed_series(reader, identity, *subject)
        rule_alerts = alerts(rule, by_subject[subject])
        judged += rule_alerts is not None
        broken += rule_alerts or []
        if rule_alerts is None and any(map(rule.fits, by_subject[subject])):
            unjudged.append(rule.metric)
    return Judgement(tuple(broken), judged, tuple(dict.fromkeys(unjudged)))


def analyzed_series(
    reader: HistoryReader, identity: tuple[str, ...], metric: str, layer: str | None = None
) -> list[TrendSeries]:
    """Return a figure of the newest runs of a series, with the places where its level changed.

    With `layer`, a path or a pattern, it is a figure of layers.
    """

    def read(connection: Connection) -> tuple[list[TrendSeries], dict[str, dict[str, float]]]:
        return fleet.newest_points(connection, identity, [metric], ANALYZED_RUNS, layer)

    points, yardsticks = reader.query(read)
    return [with_changes(with_correction(series, yardsticks), len(points)) for series in points]
