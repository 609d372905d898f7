"""Trends: figures over the runs of a history, their changes, and alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torchgauge.records import rendering
from torchgauge.records.record import How, Interval, IntervalScope, Record

SCHEMA = "torchgauge.trend/1"
CONFIRM = (
    "Advice, not proof: a paired run of both commits "
    "(`torchgauge gate --base-ref REVISION TARGET`) confirms it."
)

Lasting = Literal["stays", "went away", "return"]


class TrendPoint(Record, frozen=True, kw_only=True):
    """One run's figure in SI units.

    `low` and `high` are its 95 % interval, `scope` says of which repetitions (`Interval.scope`);
    None where unknown. `corrected` is the figure at the machine's usual speed, estimated from
    reference work timed between the calls; None where that does not tell.
    """

    run: str
    created: str
    value: float
    low: float | None = None
    high: float | None = None
    commit: str = ""
    dirty: bool | None = None
    torch: str = ""
    scope: IntervalScope | None = None
    corrected: float | None = None


class TrendCorrection(Record, frozen=True, kw_only=True):
    """What the machine's speed explains of a series.

    Attributes:
        before: Standard deviation of a run's logarithm by neighbouring runs, as measured.
        after: The same of the corrected figures.
        runs: Runs that have a corrected figure; each by weights learnt from the others.
        how: How the corrected figures are known.
    """

    before: float
    after: float
    runs: int
    how: How = "estimated"


class TrendChange(Record, frozen=True, kw_only=True):
    """A change of level: it happened after point `first`, at the latest with point `last`.

    `likeliest` is the most probable first point of the new level, `after` and `until` are the
    commits of `first` and `last`. `size` is relative (0.05 is 5 % more), with a 95 % interval; None
    with `how` "counted", where it is exact. `lasting` says whether the former level came back
    since. `software` is what else differs across the change.
    """

    likeliest: int
    first: int
    last: int
    after: str
    until: str
    size: float
    interval: Interval | None
    worse: bool | None
    lasting: Lasting = "stays"
    software: str = ""
    how: How = "estimated"
    note: str = CONFIRM


class TrendSeries(Record, frozen=True, kw_only=True):
    """One figure of one workload on one machine and branch, oldest run first.

    `layer` is a layer's path, None for a figure of the whole model. `unit` is SI's, empty for
    counts. `unknown` says why changes were not looked for. `correction` is None where the
    machine's speed was not seen to explain the series; `changes_in` says which of the points'
    values the changes are of: the corrected ones where each run has one.
    """

    target: str
    model: str
    branch: str
    machine: str
    cpu: str
    gpu: str
    device: str
    precision: str
    workload: str
    metric: str
    layer: str | None
    unit: str
    how: How
    points: tuple[TrendPoint, ...]
    changes: tuple[TrendChange, ...] = ()
    unknown: str = ""
    correction: TrendCorrection | None = None
    changes_in: Literal["measured", "corrected"] = "measured"

    @property
    def values(self) -> tuple[float, ...]:
        """The points' values."""
        return tuple(point.value for point in self.points)

    @property
    def corrected(self) -> tuple[float, ...]:
        """The points' values at the machine's usual speed, of those that have one."""
        return tuple(point.corrected for point in self.points if point.corrected is not None)


class Alert(Record, frozen=True, kw_only=True):
    """A rule that a series breaks: `value` against `limit` in `unit`; relative where it is "ratio".

    `borderline`: the limit lies within the value's interval.
    """

    rule: str
    target: str
    branch: str
    machine: str
    metric: str
    layer: str | None
    message: str
    value: float
    limit: float
    unit: str
    borderline: bool = False


class Trend(Record, frozen=True, kw_only=True):
    """The requested series of a store; `alerts` where rules were given.

    `unmatched` are rules that found too few runs to judge: unknown, which is no pass.
    """

    schema: str = SCHEMA
    store: str
    series: tuple[TrendSeries, ...]
    alerts: tuple[Alert, ...] = ()
    unmatched: tuple[str, ...] = ()

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the page of the series, and write it to `path` if one is given.

        Raises InputError `output-unwritable`.
        """
        return rendering.text(self, "html", path)
