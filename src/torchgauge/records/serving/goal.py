"""Limits on what requests may take, and whether a level of load met them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from torchgauge.records.record import Interval, Record

Timed = Literal["latency", "service", "ttft", "itl", "tpot", "errors"]
"""`latency` and `ttft` count from when a request was scheduled, `service` from when it was sent."""
GoalVerdict = Literal["met", "missed", "unclear"]


class Goal(Record, frozen=True, kw_only=True):
    """One limit: `p99<100ms` is latency, 0.99, 0.1; `errors<1%` a share of requests.

    `fraction` is None for the mean and for errors. A request meets it whose own time is within
    `limit` (goodput).
    """

    metric: Timed
    limit: float
    fraction: float | None = None
    text: str = ""


class GoalResult(Record, frozen=True, kw_only=True):
    """A goal at a level of load: met, missed, or unclear, where the limit lies in the interval.

    `value` is None where the level does not show it, in `reason` why.
    """

    goal: Goal
    verdict: GoalVerdict
    value: float | None = None
    interval: Interval | None = None
    reason: str = ""


def verdict_of_all(results: Iterable[GoalResult]) -> GoalVerdict | None:
    """Return the worst verdict, which is that of all goals together; None without goals."""
    verdicts = {result.verdict for result in results}
    order: tuple[GoalVerdict, ...] = ("missed", "unclear", "met")
    return next((verdict for verdict in order if verdict in verdicts), None)
