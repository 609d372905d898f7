"""Series of a metric, changes in them and rules about them, made by hand."""

import datetime

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.records.record import Interval
from torchgauge.records.trend import Trend, TrendChange, TrendPoint, TrendSeries

DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def series(values, *, metric="latency_median", unit="s", layer=None, changes=(), bounds=None, **of):
    points = tuple(
        TrendPoint(
            run=f"run{day}",
            created=(DAY + datetime.timedelta(days=day)).isoformat(),
            value=value,
            low=None if bounds is None else value * bounds[0],
            high=None if bounds is None else value * bounds[1],
            commit=f"c{day}",
        )
        for day, value in enumerate(values)
    )
    known = {
        "target": "net",
        "model": "Net",
        "branch": "main",
        "machine": "m",
        "cpu": "c",
        "gpu": "",
    }
    known |= {"device": "cpu", "precision": "fp32", "workload": "w", "how": "measured"}
    return TrendSeries(
        **(known | of), metric=metric, unit=unit, layer=layer, points=points, changes=changes
    )


def rule(kind="threshold", limit=0.010, unit="s", **more):
    return Rule(name="r", kind=kind, limit=limit, unit=unit, **{"metric": "latency_median"} | more)


def change(at, size, **more):
    return TrendChange(
        likeliest=at, first=at - 1, last=at, after="a" * 40, until="b" * 40, size=size,
        **{"worse": size > 0, "interval": Interval(low=size, high=size)} | more,
    )  # fmt: skip


def trend():
    """A trend of one series, in which a rule is broken and another one is about nothing."""
    changes = (change(1, 0.1), change(2, -0.1, interval=None))
    return Trend(
        store="h.db",
        series=(series([1.0] * 3, changes=changes),),
        alerts=alerts(rule(limit=0.5), [series([1.0])]),
        unmatched=("other",),
    )
