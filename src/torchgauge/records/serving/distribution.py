"""The distribution of a time over requests, with intervals that hold where requests resemble."""

from __future__ import annotations

from torchgauge.records.record import How, Interval, Record


class Estimate(Record, frozen=True, kw_only=True):
    """A figure with its 95 % interval, or in `reason` why it has none.

    `needed` is how many requests an interval takes, where more of them would give one.
    """

    value: float
    interval: Interval | None = None
    reason: str = ""
    needed: int | None = None
    how: How = "measured"


class Percentile(Estimate, frozen=True, kw_only=True):
    """The value that a share `fraction` of the requests do not exceed."""

    fraction: float


class Distribution(Record, frozen=True, kw_only=True):
    """A time in seconds over the requests of a steady window.

    Attributes:
        count: Requests (of ITL: gaps).
        unanswered: Those among them that ended without this time (no answer, a time-out): they
            count as longer than all others. A percentile among them is left out. Of ITL a request
            without an answer is as many gaps as an answered one has on average.
        mean: The mean of the others.
        low: The least.
        high: The most.
        percentiles: p50, p90, p95, p99 and what goals ask for, in ascending order; a percentile
            that `count` requests cannot show is left out.
        correlation: Requests in a row that count as one independent request at the median (τ).
    """

    count: int
    unanswered: int = 0
    mean: Estimate
    low: float
    high: float
    percentiles: tuple[Percentile, ...] = ()
    correlation: float | None = None

    def percentile(self, fraction: float) -> Percentile | None:
        """Return the percentile of a fraction; None where it is not known."""
        return next((p for p in self.percentiles if abs(p.fraction - fraction) < 1e-9), None)
