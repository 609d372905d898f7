"""A trend made by hand: 60 runs, the latency 6 % up since the 39th, the memory as it was."""

from torchgauge.records.record import Interval
from torchgauge.records.trend import Trend, TrendChange, TrendPoint, TrendSeries


def points(values, reach=0.01):
    return tuple(
        TrendPoint(
            run=f"run{number}",
            created=f"2026-01-{number % 28 + 1:02}T03:04:05+00:00",
            value=value,
            low=value * (1 - reach),
            high=value * (1 + reach),
            commit=f"c{number}",
        )
        for number, value in enumerate(values)
    )


def series(metric, unit, values, changes=(), target="net.py:make"):
    return TrendSeries(
        target=target, model="Net", branch="main", machine="f00", cpu="A CPU", gpu="", device="cpu",
        precision="fp32", workload="w", metric=metric, layer=None, unit=unit, how="measured",
        points=points(values), changes=changes,
    )  # fmt: skip


def trend(target="net.py:make", metric="latency_median") -> Trend:
    change = TrendChange(
        likeliest=38, first=37, last=38, after="c37", until="c38", size=0.06,
        interval=Interval(low=0.05, high=0.07), worse=True,
    )  # fmt: skip
    latency = [0.010 * (1.06 if number >= 38 else 1.0) for number in range(60)]
    return Trend(
        store="history.db",
        series=(
            series(metric, "s", latency, (change,), target),
            series("memory_peak", "B", [1_000.0] * 60, target=target),
        ),
    )
