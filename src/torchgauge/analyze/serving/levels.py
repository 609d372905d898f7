"""A level of load from its requests: every figure, and what it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.distributions import distribution, rate, share
from torchgauge.analyze.serving.early_stopping import FRACTIONS, early_stopping, longest_together
from torchgauge.analyze.serving.goals import judged, within_goals
from torchgauge.analyze.serving.request_times import RequestTimes, in_window, steady_window
from torchgauge.analyze.serving.saturation import client_warnings, saturation, with_limit
from torchgauge.analyze.statistics.correlated_percentiles import CorrelatedSamples
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.serving.distribution import Distribution, Estimate
from torchgauge.records.serving.goal import Goal
from torchgauge.records.serving.level import Arrivals, ClientLoad, EarlyStopping, Level, Scenario
from torchgauge.records.serving.requests import Requests
from torchgauge.records.serving.server_use import ServerUse

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
