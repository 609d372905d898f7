"""A level of load from its requests: every figure, and what it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.distributions import distribution, rate, share
from torchgauge.analyze.serving.goals import judged, within_goals
from torchgauge.analyze.serving.request_times import RequestTimes, in_window, steady_window
from torchgauge.analyze.serving.saturation import client_warnings, saturation, with_limit
from torchgauge.analyze.statistics.autocorrelation import CorrelatedSamples
from torchgauge.imports import imported
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.serving.level import (
    Arrivals,
    ClientLoad,
    EarlyStopping,
    Level,
    Scenario,
    ServerUse,
)
from torchgauge.records.serving.requests import Distribution, Estimate, Goal, Requests

CONFIDENCE = 0.99
# The percentile of each scenario in MLPerf's rules.
FRACTIONS: dict[Scenario, float] = {"single-stream": 0.90, "multi-stream": 0.99, "server": 0.99}


def queries_needed(fraction: float, over: int) -> int:
    """Return how many queries show a percentile where `over` of them exceed the limit.

    The smallest h + t with I_p(h, t + 1) ≤ 1 − 0.99 for t = `over`: so few of h + t queries
    exceed the limit in one of a hundred runs at most, if a share 1 − p of all does. Valid for
    independent queries only.

    Source: MLPerf Inference rules, "Early stopping".
    """
    betainc = imported("scipy.special").betainc
    low, high = 0, 1
    while betainc(high, over + 1, fraction) > 1 - CONFIDENCE:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if betainc(middle, over + 1, fraction) > 1 - CONFIDENCE:
            low = middle
        else:
            high = middle
    return high + over


def queries_that_may_exceed(fraction: float, queries: int) -> int | None:
    """Return the most of `queries` that may exceed the limit; None where there are too few."""
    if queries < queries_needed(fraction, 0):
        return None
    low, high = 0, queries
    while high - low > 1:
        middle = (low + high) // 2
        if queries_needed(fraction, middle) <= queries:
            low = middle
        else:
            high = middle
    return low


def early_stopping(
    latencies: npt.ArrayLike, scenario: Scenario, limit: float | None = None
) -> EarlyStopping | None:
    """Return the verdict on latencies of queries; None offline, where the rule does not apply.

    Single- and multi-stream have a conservative estimate of the percentile: with t queries that may
    exceed it, the t-th largest latency, for t ≥ 1. The server scenario is judged against `limit`,
    passed where there are as many queries as the number over it needs; without one it has the
    estimate too.

    Args:
        latencies: Seconds of each query, infinite for one that was not answered.
        scenario: Which percentile.
        limit: Seconds.
    """
    fraction = FRACTIONS.get(scenario)
    if fraction is None:
        return None
    ascending = np.sort(np.asarray(latencies, dtype=np.float64))
    count = ascending.size
    if limit is not None and scenario == "server":
        over = int((ascending > limit).sum())
        needed = queries_needed(fraction, over)
        return EarlyStopping(
            fraction=fraction, queries=count, needed=needed, over=over, passed=count >= needed
        )
    allowed = queries_that_may_exceed(fraction, count)
    if not allowed:
        return EarlyStopping(
            fraction=fraction, queries=count, needed=queries_needed(fraction, 1), passed=False
        )
    estimate = float(ascending[count - allowed])
    return EarlyStopping(
        fraction=fraction,
        queries=count,
        needed=queries_needed(fraction, allowed),
        over=allowed,
        estimate=estimate if np.isfinite(estimate) else None,
        passed=bool(np.isfinite(estimate)),
    )


def longest_together(
    scheduled: npt.NDArray[np.float64], latencies: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the latency of each query: the longest of the requests that were due together."""
    if scheduled.size == 0:
        return latencies
    begins = np.flatnonzero(np.diff(scheduled, prepend=-np.inf))
    return np.maximum.reduceat(latencies, begins)


_Bools = npt.NDArray[np.bool_]


def level(
    requests: Requests,
    *,
    scenario: Scenario,
    arrivals: Arrivals,
    duration: float,
    goals: Sequence[Goal] = (),
    client: ClientLoad | None = None,
    server: ServerUse | None = None,
    tokens_by: str = "",
    mlperf: bool = False,
    interrupted: bool = False,
) -> Level:
    """Return the figures of a level of load, of the requests that are due in its steady window.

    Args:
        requests: Every request of the level.
        scenario: How requests followed each other.
        arrivals: The schedule.
        duration: Seconds for which requests were scheduled; after an interruption, until then.
        goals: The limits.
        client: How the client fared.
        server: What the server's processes used.
        tokens_by: Who counted the tokens: "usage" (the server) or "chunks".
        mlperf: Whether to apply MLPerf's early stopping.
        interrupted: Whether Ctrl-C ended the level.
    """
    columns = RequestTimes(requests)
    bare = Level(
        scenario=scenario,
        arrivals=arrivals,
        duration=duration,
        window=steady_window(columns, duration, scenario, interrupted=interrupted),
        requests=requests,
        server=server,
        tokens_by=tokens_by or ("chunks" if np.nansum(columns.chunks) > 0 else ""),
        interrupted=interrupted,
    )
    inside = in_window(columns, bare.window)
    counted = _with_counts(bare, columns, inside, goals)
    samples = _samples(columns, inside)
    distributions = {metric: _distribution(metric, samples, goals) for metric in samples}
    client = None if client is None else with_limit(client, distributions.get("latency"))
    figures = msgspec.structs.replace(
        counted,
        client=client,
        early_stopping=_early_stopping(columns, inside, scenario, goals) if mlperf else None,
        warnings=(*(client_warnings(client) if client else ()), *_stream_warnings(columns, inside)),
        **distributions,
    )
    results = tuple(judged(goal, figures, _over(goal, samples)) for goal in goals)
    return msgspec.structs.replace(figures, goals=results)


def _with_counts(
    bare: Level, columns: RequestTimes, inside: _Bools, goals: Sequence[Goal]
) -> Level:
    """Add numbers of requests, rates and the backlog."""
    window = bare.window
    closed = bare.arrivals.kind in ("closed", "at once")
    length = window[1] - window[0]
    fates = Counter(bare.requests.fate[index] for index in np.flatnonzero(inside))
    return msgspec.structs.replace(
        bare,
        count=int(inside.sum()),
        fates=dict(fates),
        offered=float(inside.sum()) / length if length > 0 and not closed else None,
        completed=_completed(columns, window, inside),
        goodput=_goodput(columns, window, inside, goals),
        errors=share(~columns.done[inside]),
        tokens=_tokens(columns, columns.tokens_out, window),
        tokens_in=_tokens(columns, columns.tokens_in, window),
        saturation=saturation(columns, window, closed=closed),
    )


def _samples(columns: RequestTimes, inside: _Bools) -> dict[str, CorrelatedSamples]:
    """Return the known times of the window by metric, each in the order of time."""
    metrics = ["latency", "service", "wait", "tpot", "itl"]
    if np.nansum(columns.chunks) > 0:  # token streams
        metrics.append("ttft")
    values = {metric: columns.times_of(metric, inside) for metric in metrics}
    return {metric: CorrelatedSamples(s) for metric, s in values.items() if s.size}


def _distribution(
    metric: str, samples: dict[str, CorrelatedSamples], goals: Sequence[Goal]
) -> Distribution | None:
    fractions = (goal.fraction for goal in goals if goal.metric == metric)
    return distribution(samples[metric], (f for f in fractions if f is not None))


def _over(goal: Goal, samples: dict[str, CorrelatedSamples]) -> Interval | None:
    if goal.fraction is None or goal.metric not in samples:
        return None
    _, low, high = samples[goal.metric].share_above(goal.limit)
    return Interval(low=low, high=high, scope="process")


def _stream_warnings(columns: RequestTimes, inside: _Bools) -> Iterator[MeasurementWarning]:
    """Yield the warning of streams of which no part came before the others."""
    streams = inside & columns.done & (columns.chunks > 1)
    count = int((streams & columns.in_one_piece).sum())
    if count > streams.sum() / 2:
        yield MeasurementWarning(
            id="stream-in-one-piece",
            message=f"{count:,} streams came in one piece: their TPOT and ITL are unknown.",
            probe="serving",
            cause="Something between server and client, such as a proxy, keeps an answer until "
            "it is whole.",
            remedy="Turn its buffering off (nginx: proxy_buffering off), or send to the server.",
        )


def _completed(
    columns: RequestTimes, window: tuple[float, float], inside: _Bools
) -> Estimate | None:
    """Return answers per second; None where those to the window's requests all came after it."""
    completed = rate(columns.last[columns.done], window)
    is_late = completed is not None and not completed.value and columns.done[inside].any()
    return None if is_late else completed


def _goodput(
    columns: RequestTimes, window: tuple[float, float], inside: _Bools, goals: Sequence[Goal]
) -> Estimate | None:
    if not goals:
        return None
    good = within_goals(columns, goals) & inside
    # What is due at once is answered over time: there, a request counts when it is answered.
    due_at_once = columns.scheduled[inside].max(initial=0.0) <= window[0]
    return rate((columns.last if due_at_once else columns.scheduled)[good], window)


def _tokens(
    columns: RequestTimes, tokens: npt.NDArray[np.float64], window: tuple[float, float]
) -> Estimate | None:
    counted = columns.done & ~np.isnan(tokens)
    return rate(columns.last[counted], window, tokens[counted]) if counted.any() else None


def _early_stopping(
    columns: RequestTimes, inside: _Bools, scenario: Scenario, goals: Sequence[Goal]
) -> EarlyStopping | None:
    """Apply MLPerf's rule to the latencies of the window; a query may be several requests."""
    fraction = FRACTIONS.get(scenario)
    limits = [g.limit for g in goals if g.metric == "latency" and g.fraction == fraction]
    limit = min(limits) if limits else None
    latencies = columns.latency[inside]
    if scenario == "multi-stream":
        latencies = longest_together(columns.scheduled[inside], latencies)
    return early_stopping(latencies, scenario, limit)
