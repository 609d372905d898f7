"""Requests as arrays: what each waited, and the window in which they are steady."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.arrivals import WARM_UP, schedule
from torchgauge.records.serving.level import Level, Scenario
from torchgauge.records.serving.requests import Percentile, Requests

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# Shares of a level's duration.
MOST_DRAIN = 0.1
MOST_RAMP = 0.5
# Answers that show how long a level runs before they come as fast as requests.
FIRST_ANSWERS = 10
# Infinite gaps beside finite ones: of many, these suffice for any percentile from p20 up to be one.
MOST_INFINITE, FEW_GAPS = 4, 100_000


class RequestTimes:
    """Columns of requests in the order of their schedule, in seconds; NaN is unknown.

    A time that a request ended without, since it was not answered, is infinite.

    Attributes:
        scheduled: Seconds from the level's begin.
        sent: Likewise; NaN for a request that was not sent.
        first: Of the first content.
        last: Of the whole answer.
        done: Whether it was answered as it should be.
        waiting: Whether nobody answered before the client gave up: a timeout, no free slot, or
            the end.
    """

    def __init__(self, requests: Requests) -> None:
        count = len(requests)
        self._requests = requests
        self.scheduled = np.asarray(requests.scheduled, dtype=np.float64)
        self.sent = _column(requests.sent, count)
        self.first = _column(requests.first, count)
        self.last = _column(requests.last, count)
        fates = np.asarray(requests.fate, dtype=np.str_)
        self.done: _Bools = fates == "done"
        self.waiting: _Bools = np.isin(fates, ("timeout", "unsent", "unfinished"))

    @cached_property
    def latency(self) -> _Floats:
        """From scheduled to last."""
        return np.where(self.done, self.last - self.scheduled, np.inf)

    @cached_property
    def service(self) -> _Floats:
        """From sent to last; NaN for what was not sent."""
        answered = np.where(self.done, self.last - self.sent, np.inf)
        return np.where(np.isnan(self.sent), np.nan, answered)

    @cached_property
    def wait(self) -> _Floats:
        """From scheduled to sent; NaN for what was answered before all of it was sent."""
        unsent = np.where(np.isnan(self.last), np.inf, np.nan)
        return np.where(np.isnan(self.sent), unsent, self.sent - self.scheduled)

    @cached_property
    def ttft(self) -> _Floats:
        """From scheduled to first; infinite for a stream without contents, however it ended."""
        # The first byte of an error's body is no token.
        came = (self.done | (self.chunks > 0)) & ~np.isnan(self.first)
        return np.where(came, self.first - self.scheduled, np.inf)

    @cached_property
    def tokens_in(self) -> _Floats:
        """Tokens of the prompt; NaN where the server counted those of its answer wrongly."""
        tokens = _column(self._requests.tokens_in, self.scheduled.size)
        return np.where(self.miscounted, np.nan, tokens)

    @cached_property
    def tokens_out(self) -> _Floats:
        """Tokens of the answer; where they were not counted, or wrongly, its chunks."""
        return np.where(np.isnan(self.usage) | self.miscounted, self.chunks, self.usage)

    @cached_property
    def usage(self) -> _Floats:
        """Tokens of the answer as the server counted them."""
        return _column(self._requests.tokens_out, self.scheduled.size)

    @cached_property
    def miscounted(self) -> _Bools:
        """Where the server counted fewer tokens than contents came, each at least a token."""
        is_too_few: _Bools = self.usage < self.chunks
        return is_too_few

    @cached_property
    def chunks(self) -> _Floats:
        """Events with content; NaN without any."""
        chunks = _column(self._requests.chunks, self.scheduled.size)
        return np.where(chunks > 0, chunks, np.nan)

    @cached_property
    def in_one_piece(self) -> _Bools:
        """Which answers of several contents came at one moment: something on the way kept them."""
        streamed = np.bincount(self.gap_owners, self.gaps, minlength=self.scheduled.size)
        at_once: _Bools = (self.chunks > 1) & (streamed == 0)
        return at_once

    @cached_property
    def tpot(self) -> _Floats:
        """(last − first) ÷ (tokens − 1); NaN for less than two tokens or chunks, or one piece."""
        is_known = (self.tokens_out > 1) & (self.chunks > 1) & ~self.in_one_piece
        gaps = np.where(is_known, self.tokens_out - 1, np.nan)
        return np.where(self.done, (self.last - self.first) / gaps, np.inf)

    @cached_property
    def gaps(self) -> _Floats:
        """Every gap between contents, of all requests one after the other."""
        return np.asarray(self._requests.gaps, dtype=np.float64)

    @cached_property
    def gap_owners(self) -> npt.NDArray[np.int64]:
        """The index of each gap's request."""
        counts = np.nan_to_num(self.chunks - 1, nan=0.0).clip(min=0).astype(np.int64)
        return np.repeat(np.arange(counts.size), counts)

    @cached_property
    def gap_ends(self) -> _Floats:
        """When each gap ended, in seconds from the level's begin."""
        if self.gaps.size == 0:
            return self.gaps
        sums = np.cumsum(self.gaps)
        owners = self.gap_owners
        begins = np.searchsorted(owners, owners, side="left")
        before = np.where(begins > 0, sums[begins - 1], 0.0)
        return np.asarray(self.first[owners] + sums - before, dtype=np.float64)

    def times_of(self, metric: str, inside: _Bools) -> _Floats:
        """Return the times of a metric of the requests `inside`, in the order of time.

        Left out are requests without it (one token has no TPOT); what was not answered is infinite.
        Empty where requests were answered, and none of them has it.
        """
        times = self._pooled_gaps(inside) if metric == "itl" else getattr(self, metric)[inside]
        times = times[~np.isnan(times)]
        is_absent = not np.isfinite(times).any() and self.done[inside].any()
        return times[:0] if is_absent else times

    def _pooled_gaps(self, inside: _Bools) -> _Floats:
        """Return gaps by when they ended: a stall that several streams share is one event.

        A request that was not answered has, beside its own, as many infinite ones as an answered
        request has gaps on average: a single one would be lost among those of long streams.
        """
        streamed = inside & ~self.in_one_piece
        own = np.flatnonzero(streamed[self.gap_owners])
        failed, done = np.flatnonzero(inside & ~self.done), streamed & self.done
        mean_gaps = round(float(done[self.gap_owners].sum()) / max(int(done.sum()), 1))
        most_gaps = max(MOST_INFINITE * own.size, FEW_GAPS) // max(failed.size, 1)
        gaps_of_failed = max(min(mean_gaps, most_gaps), 1)
        gaps = np.concatenate((self.gaps[own], np.full(gaps_of_failed * failed.size, np.inf)))
        moments_of_failed = np.repeat(self.scheduled[failed], gaps_of_failed)
        moments = np.concatenate((self.gap_ends[own], moments_of_failed))
        return np.asarray(gaps[np.argsort(moments, kind="stable")], dtype=np.float64)


def _column(values: Sequence[float | None], count: int) -> _Floats:
    return np.asarray(values, dtype=np.float64) if values else np.full(count, np.nan)


def in_window(times: RequestTimes, window: tuple[float, float]) -> _Bools:
    """Return which requests were due in the window: at its begin or later, before its end."""
    within: _Bools = (times.scheduled >= window[0]) & (times.scheduled < window[1])
    return within


def steady_window(
    times: RequestTimes, duration: float, scenario: Scenario, *, interrupted: bool = False
) -> tuple[float, float]:
    """Return begin and end of the window in seconds from the level's begin.

    The first tenth is warm-up: the queue begins empty, caches and connections cold. It is as long
    as the first answers took, half of the duration at most: before that, few come. The drain is
    as long as nine of ten requests took, a tenth of the duration at most: what was scheduled in it
    was answered under less load. After an interruption it is as long as the longest request took,
    since slow requests lack their answer. Requests that were all due at once are not cut, and where
    none is due in the window or answered, it is the whole level until the last answer.

    Args:
        times: Those of all requests.
        duration: Seconds for which requests were scheduled.
        scenario: "offline": until the last answer.
        interrupted: Whether `duration` ended before its time.
    """
    answered = times.latency[np.isfinite(times.latency)]
    last = float(times.last[np.isfinite(times.last)].max(initial=0.0))
    if scenario == "offline":
        return 0.0, last or duration
    window = (WARM_UP * duration, duration)
    if answered.size:
        ramp = float(answered[:FIRST_ANSWERS].max())
        window = (max(window[0], min(ramp, MOST_RAMP * duration)), duration)
        if interrupted:
            drain = min(float(answered.max()), duration / 2)
        else:
            rank = math.ceil(0.9 * answered.size) - 1
            drain = min(float(np.partition(answered, rank)[rank]), MOST_DRAIN * duration)
        window = (window[0], duration - drain)
    if times.scheduled.size and not (answered.size and in_window(times, window).any()):
        end = max(duration, last, float(times.scheduled.max()))
        return 0.0, math.nextafter(end, math.inf)
    return window


Floats = npt.NDArray[np.float64]

# Simulations of the level's own schedule.
REPEATS = 8
LONG_REQUESTS = 200_000
# Where simulated latencies follow the measured ones less closely, the schedule explains too little
# of the chance; where their medians differ by more, the simulation is of another server.
LEAST_CORRELATION = 0.9
MOST_DIFFERENCE = 0.1
# A queue that grows without end has no percentile: its second half is slower by more.
MOST_GROWTH = 1.5
# Arrivals in seconds and a seed to simulated latencies.
Simulation = Callable[[Floats, int], Floats]


def with_control(level: Level, simulated: Simulation) -> Level:
    """Add the highest percentile of latency, corrected for the chance of the schedule.

    Measured percentile × simulated percentile of a long run ÷ simulated percentile of the same
    schedule: estimated, and without an interval. None where the simulation does not follow what was
    measured, where requests were not answered, or in a closed loop.

    Args:
        level: A level of the server scenario.
        simulated: Simulates a server with the measured service times: the seconds at which requests
            arrive and a seed give their latencies.
    """
    columns = RequestTimes(level.requests)
    inside = in_window(columns, level.window)
    latency = columns.latency[inside]
    unstable = level.saturation is None or level.saturation.saturated is not False
    unknown = latency.size == 0 or not np.isfinite(latency).all()
    if unstable or unknown or level.arrivals.kind in ("closed", "at once", "file"):
        return level
    fraction = _highest_fraction(level)
    runs = np.array([simulated(columns.scheduled, seed)[inside] for seed in range(REPEATS)])
    long_run = _long_percentile(level, simulated, fraction)
    if long_run is None or not _follows(latency, runs):
        return level
    short_run = float(np.mean([_percentile(run, fraction) for run in runs]))
    value = _percentile(latency, fraction) * long_run / short_run
    controlled = Percentile(
        fraction=fraction,
        value=value,
        how="estimated",
        reason="It rests on a simulation of the same schedule, whose own error is not known.",
    )
    return msgspec.structs.replace(level, controlled=controlled)


def _highest_fraction(level: Level) -> float:
    fractions = [
        result.goal.fraction
        for result in level.goals
        if result.goal.metric == "latency" and result.goal.fraction is not None
    ]
    return max(fractions, default=0.99)


def _percentile(latency: Floats, fraction: float) -> float:
    return float(np.quantile(latency, fraction, method="inverted_cdf"))


def _long_percentile(level: Level, simulated: Simulation, fraction: float) -> float | None:
    """Return the percentile of a long run after its first tenth; None where the queue grows."""
    arrivals = msgspec.structs.replace(level.arrivals, seed=level.arrivals.seed + 1)
    due = schedule(arrivals, duration=math.inf, count=LONG_REQUESTS)
    latency = simulated(due, REPEATS)[LONG_REQUESTS // 10 :]
    earlier, later = np.array_split(latency, 2)
    if later.mean() > MOST_GROWTH * earlier.mean():
        return None
    return _percentile(latency, fraction)


def _follows(latency: Floats, runs: Floats) -> bool:
    typical = runs.mean(axis=0)
    medians = float(np.median(typical)), float(np.median(latency))
    if abs(medians[0] - medians[1]) > MOST_DIFFERENCE * medians[1]:
        return False
    if latency.std() == 0 or typical.std() == 0:
        return bool(latency.std() == typical.std())
    return bool(np.corrcoef(np.log(latency), np.log(typical))[0, 1] >= LEAST_CORRELATION)
