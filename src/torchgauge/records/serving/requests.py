"""Requests of a load: their goals, and how their times are distributed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from torchgauge.records.record import How, Interval, Record

Fate = Literal[
    "done",
    "timeout",  # no whole answer within the client's limit
    "refused",  # no connection
    "reset",  # the connection broke before the answer was whole
    "status",  # an answer of another status than 2xx
    "protocol",  # bytes that are no answer of the protocol
    "stream",  # a stream that ended without its last event, or named an error
    "answer",  # an answer without the fields of the API
    "tls",  # no secure connection
    "redirect",  # an answer that names another host
    "local",  # this machine had no port, file descriptor or memory left
    "failed",  # a model that was called directly raised
    "unsent",  # no free slot in flight before the end
    "unfinished",  # no whole answer before the end or an interruption
]
FATES: tuple[Fate, ...] = get_args(Fate)


class Requests(Record, frozen=True, kw_only=True):
    """The requests of a level in the order of their schedule: columns of equal length.

    All times are seconds on the client's monotonic clock from the begin of the level, and
    scheduled ≤ sent ≤ first ≤ last. A column that nothing fills is empty; None in it is unknown.

    Attributes:
        scheduled: When it was due. In a closed loop: when it was sent.
        sent: When its last byte was given to the socket; None where it was not.
        first: When the first content came: a token of a stream, else the first byte of the body.
        last: When the answer was whole.
        fate: What became of it.
        status: The HTTP status.
        item: Index of its body or prompt.
        tokens_in: Tokens of its prompt, by the server's `usage`.
        tokens_out: Tokens of its answer, likewise.
        first_reasoning: When the first reasoning token came, which is no content.
        chunks: Events with content in its stream.
        gaps: Seconds between such events, of all requests one after the other: `chunks` − 1 each.
        batch: Requests that the server computed with it, itself included, if the server says so.
        service: Seconds of that batch in the server, if the server says so.
    """

    scheduled: tuple[float, ...] = ()
    sent: tuple[float | None, ...] = ()
    first: tuple[float | None, ...] = ()
    last: tuple[float | None, ...] = ()
    fate: tuple[Fate, ...] = ()
    status: tuple[int | None, ...] = ()
    item: tuple[int, ...] = ()
    tokens_in: tuple[int | None, ...] = ()
    tokens_out: tuple[int | None, ...] = ()
    first_reasoning: tuple[float | None, ...] = ()
    chunks: tuple[int, ...] = ()
    gaps: tuple[float, ...] = ()
    batch: tuple[int | None, ...] = ()
    service: tuple[float | None, ...] = ()

    def __len__(self) -> int:
        return len(self.scheduled)


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


class Capacity(Record, frozen=True, kw_only=True):
    """The highest rate that met all goals, in requests per second.

    Attributes:
        rate: It; None where no rate that was tried met them for sure.
        interval: Where it lies. Of a search, the 95 % interval of the fit, whose lower end is
            `rate`; of given rates, from the highest that met the goals to the lowest that missed.
        searched: Whether levels were chosen to find it; else they are those of given rates.
        above_all_tried: Whether the highest that was tried met them: `rate` is a lower bound.
        reason: What ended the search, in a sentence.
        confirmed: Whether a second run at `rate` met the goals: False where it surely missed them;
            None where it does not decide that, or there was none.
    """

    rate: float | None = None
    interval: Interval | None = None
    searched: bool = False
    above_all_tried: bool = False
    reason: str = ""
    confirmed: bool | None = None
