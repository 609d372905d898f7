"""A level of load from its requests: every figure, and what it lacks."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.goals import judged, within_goals
from torchgauge.analyze.serving.request_times import (
    FIRST_ANSWERS,
    RequestTimes,
    in_window,
    steady_window,
)
from torchgauge.analyze.serving.saturation import client_warnings, saturation, with_limit
from torchgauge.analyze.statistics import autocorrelation
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
from torchgauge.records.serving.requests import Distribution, Estimate, Goal, Percentile, Requests

_Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.99
MOST_QUERIES = 1 << 32  # that are looked at: no run has as many
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
    numbers = range(MOST_QUERIES)
    return over + bisect.bisect_left(
        numbers, True, 1, key=lambda h: betainc(h, over + 1, fraction) <= 1 - CONFIDENCE
    )


def queries_that_may_exceed(fraction: float, queries: int) -> int | None:
    """Return the most of `queries` that may exceed the limit; None where there are too few."""
    allowed = bisect.bisect_right(
        range(queries), queries, key=lambda over: queries_needed(fraction, over)
    )
    return allowed - 1 if allowed else None


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
    allowed = queries_that_may_exceed(fraction, count) or 0
    estimate = float(ascending[count - allowed]) if allowed else np.inf
    is_known = bool(np.isfinite(estimate))
    return EarlyStopping(
        fraction=fraction,
        queries=count,
        needed=queries_needed(fraction, allowed or 1),
        over=allowed,
        estimate=estimate if is_known else None,
        passed=is_known,
    )


def longest_together(scheduled: _Floats, latencies: _Floats) -> _Floats:
    """Return the latency of each query: the longest of the requests that were due together."""
    if scheduled.size == 0:
        return latencies
    begins = np.flatnonzero(np.diff(scheduled, prepend=-np.inf))
    return np.maximum.reduceat(latencies, begins)


def level(
    requests: Requests,
    *,
    scenario: Scenario,
    arrivals: Arrivals,
    duration: float,
    goals: Sequence[Goal] = (),
    client: ClientLoad | None = None,
    server: ServerUse | None = None,
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
        tokens_by=_tokens_by(columns),
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
    counted = _counted_answers(columns, window, None if closed else inside)
    rates: dict[str, Estimate | None] = {}
    if not _come_late(columns, window, inside, counted):
        good = columns.last[counted & within_goals(columns, goals)]
        rates = {
            "completed": rate(columns.last[counted], window),
            "goodput": rate(good, window) if goals else None,
            "tokens": _tokens(columns, counted, columns.tokens_out, window),
            "tokens_in": _tokens(columns, counted, columns.tokens_in, window),
        }
    fates = Counter(bare.requests.fate[index] for index in np.flatnonzero(inside))
    return msgspec.structs.replace(
        bare,
        count=int(inside.sum()),
        fates=dict(fates),
        offered=float(inside.sum()) / length if length > 0 and not closed else None,
        errors=share(~columns.done[inside]),
        saturation=saturation(columns, window, closed=closed),
        **rates,
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


def _tokens_by(columns: RequestTimes) -> str:
    if (~np.isnan(columns.usage) & ~columns.miscounted).any():
        return "usage"
    return "chunks" if np.nansum(columns.chunks) > 0 else ""


def _stream_warnings(columns: RequestTimes, inside: _Bools) -> Iterator[MeasurementWarning]:
    """Yield the warnings of wrongly counted tokens, and of streams that came in one piece."""
    miscounted = inside & columns.miscounted
    if count := int(miscounted.sum()):
        tokens, contents = (int(c[miscounted].sum()) for c in (columns.usage, columns.chunks))
        yield MeasurementWarning(
            id="usage-contradicted",
            message=f"Of {count:,} answers the server counted {tokens:,} tokens in its usage, and "
            f"{contents:,} contents came. Contents are counted as tokens there.",
            probe="serving",
            cause="A content has a token at least: the server's count is not of what it sent.",
            remedy="Have the server count its tokens; until then tokens/s are contents/s.",
        )
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


def _counted_answers(
    columns: RequestTimes, window: tuple[float, float], due: _Bools | None
) -> _Bools:
    """Return which answers are counted per second: those in the window, at most as many as `due`.

    What is above that are answers to the backlog of the warm-up, its first ones: of another rate.
    """
    counted = columns.done & (columns.last >= window[0]) & (columns.last <= window[1])
    if due is not None and (above := int(counted.sum()) - int(due.sum())) > 0:
        earlier = np.flatnonzero(counted & ~due)
        counted[earlier[np.argsort(columns.last[earlier], kind="stable")[:above]]] = False
    return counted


def _come_late(
    columns: RequestTimes, window: tuple[float, float], inside: _Bools, counted: _Bools
) -> bool:
    """Return whether answers take so long that the window has too few of them, or none."""
    if not counted.any():
        return bool(columns.done[inside].any())
    return bool(0 < window[0] < np.median(columns.latency[columns.done][:FIRST_ANSWERS]))


def _tokens(
    columns: RequestTimes, counted: _Bools, tokens: _Floats, window: tuple[float, float]
) -> Estimate | None:
    has_tokens = columns.done & ~np.isnan(tokens)
    used = has_tokens & counted
    return rate(columns.last[used], window, tokens[used]) if has_tokens.any() else None


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


# Independent samples below which neither the mean's error nor τ is known.
MIN_INDEPENDENT = 100
# A run that saw too few long queues shows too low a mean and too small an error, so that the upper
# end must reach further (benchmarks/load_coverage.py).
LOWER_TAIL = 0.025
UPPER_TAIL = 0.00001


class MeanFigure(NamedTuple):
    """A mean with its 95 % interval; the ends are None where `needed` samples would give one."""

    value: float
    low: float | None
    high: float | None
    needed: int


def correlated_mean(samples: autocorrelation.CorrelatedSamples) -> MeanFigure:
    """Return the mean of finite samples less and plus t·s·sqrt(τ′/n), of n/τ′ − 1 degrees.

    τ is that of the values, or of [x > level] where that is larger: rare long queues hide how long
    the others last.
    """
    x = samples.samples
    tau = max(autocorrelation.initial_positive_sequence(x), samples.longest_time(0.99))
    tau = autocorrelation.enlarged(tau, x.size)
    value = float(x.mean())
    needed = math.ceil(MIN_INDEPENDENT * tau)
    if x.size < needed:
        return MeanFigure(value, None, None, needed)
    effective = x.size / tau
    student = imported("scipy.special").stdtrit
    error = float(x.std(ddof=1)) / math.sqrt(effective)
    low = value + float(student(effective - 1, LOWER_TAIL)) * error
    high = value - float(student(effective - 1, UPPER_TAIL)) * error
    return MeanFigure(value, low, high, needed)


def correlated_share(events: npt.ArrayLike) -> tuple[float, float, float]:
    """Return the share of true values among booleans in the order of time, low and high.

    The 95 % interval is Clopper and Pearson's at n/τ′; it exists for any number of values.
    """
    x = np.asarray(events, dtype=np.float64)
    share = float(x.mean())
    effective = max(
        x.size / autocorrelation.enlarged(autocorrelation.initial_positive_sequence(x), x.size), 1.0
    )
    return (share, *autocorrelation.share_interval(share, effective))


BAND_FRACTIONS = (0.5, 0.9, 0.95, 0.99)
# Parts of a window whose counts give the interval of a rate.
PARTS = 30
BAND_CONFIDENCE = 0.975
_TOO_FEW = "Too few requests: those of a queue resemble each other."


def distribution(
    samples: autocorrelation.CorrelatedSamples, fractions: Iterable[float] = ()
) -> Distribution | None:
    """Return the distribution of times in the order of time; None without a finite one.

    Args:
        samples: Times in seconds; infinite for requests that ended without it.
        fractions: Percentiles beside p50, p90, p95 and p99.
    """
    times = samples.samples
    answered = times[np.isfinite(times)]
    if answered.size == 0:
        return None
    all_fractions = sorted({*BAND_FRACTIONS, *fractions})
    figures = {fraction: samples.percentile(fraction) for fraction in all_fractions}
    return Distribution(
        count=times.size,
        unanswered=times.size - answered.size,
        mean=_mean(samples, answered),
        low=float(answered.min()),
        high=float(answered.max()),
        percentiles=tuple(
            _percentile(fraction, figure)
            for fraction, figure in figures.items()
            if math.isfinite(figure.value) and times.size * (1 - fraction) >= 1 - 1e-9
        ),
        correlation=samples.correlation_time(0.5),
    )


def _percentile(fraction: float, figure: autocorrelation.PercentileFigure) -> Percentile:
    if figure.low is None or figure.high is None:
        return Percentile(
            fraction=fraction, value=figure.value, reason=_TOO_FEW, needed=figure.needed
        )
    if not math.isfinite(figure.high):
        reason = "The upper end lies among requests that ended without it."
        return Percentile(fraction=fraction, value=figure.value, reason=reason)
    interval = Interval(low=figure.low, high=figure.high, scope="process")
    return Percentile(fraction=fraction, value=figure.value, interval=interval)


def _mean(samples: autocorrelation.CorrelatedSamples, answered: _Floats) -> Estimate:
    count = samples.samples.size
    if unanswered := count - answered.size:
        reason = f"{unanswered:,} of {count:,} ended without it: the mean covers the others."
        return Estimate(value=float(answered.mean()), reason=reason)
    figure = correlated_mean(samples)
    if figure.low is None or figure.high is None:
        return Estimate(value=figure.value, reason=_TOO_FEW, needed=figure.needed)
    interval = Interval(low=max(figure.low, 0.0), high=figure.high, scope="process")
    return Estimate(value=figure.value, interval=interval)


def share(events: npt.ArrayLike) -> Estimate | None:
    """Return the share of requests with a property, in the order of time; None without requests."""
    values = np.asarray(events, dtype=np.bool_)
    if values.size == 0:
        return None
    value, low, high = correlated_share(values)
    return Estimate(value=value, interval=Interval(low=low, high=high, scope="process"))


def rate(
    times: npt.ArrayLike, window: tuple[float, float], weights: npt.ArrayLike | None = None
) -> Estimate | None:
    """Return events per second in a window; of tokens, their numbers are the `weights`.

    The interval is Student's t over 30 parts of the window, widened by the correlation of parts
    that follow each other; None for an empty window.
    """
    begin, end = window
    if end <= begin:
        return None
    counts = np.histogram(times, bins=PARTS, range=window, weights=weights)[0]
    value = float(counts.sum()) / (end - begin)
    events = int(np.count_nonzero((np.asarray(times) >= begin) & (np.asarray(times) <= end)))
    if events < PARTS:
        return Estimate(value=value, reason="Too few requests.", needed=PARTS)
    # A count in a window is known to a single event at best.
    reach = max(_reach(counts / ((end - begin) / PARTS)), 1 / (end - begin))
    interval = Interval(low=max(value - reach, 0.0), high=value + reach, scope="process")
    return Estimate(value=value, interval=interval)


def _reach(parts: _Floats) -> float:
    """Return the half-width over equal parts; neighbours that resemble each other widen it."""
    deviations = parts - parts.mean()
    variance = float(deviations @ deviations)
    if variance == 0:
        return 0.0
    correlation = max(float(deviations[1:] @ deviations[:-1]) / variance, 0.0)
    # Kendall: of n values the correlation is found too low by (1 + 4r)/n.
    correlation = min(correlation + (1 + 4 * correlation) / parts.size, 0.9) if correlation else 0.0
    inflation = (1 + correlation) / (1 - correlation)
    freedom = max(parts.size / inflation - 1, 1.0)
    student = float(imported("scipy.special").stdtrit(freedom, BAND_CONFIDENCE))
    return student * float(parts.std(ddof=1)) * math.sqrt(inflation / parts.size)
