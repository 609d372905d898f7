"""Who reached a limit: the server, whose backlog grew, or the client, which was late."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from torchgauge import units
from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.analyze.statistics.autocorrelation import initial_positive_sequence
from torchgauge.imports import imported
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.serving.level import ClientLoad, Saturation
from torchgauge.records.serving.requests import Distribution

PARTS, FEWEST_PARTS = 40, 8
# A part of fewer requests shows no change of the backlog. Where the steady window has too few for
# all parts, the whole level is looked at: what a cold server adds is little beside an overload.
PART_REQUESTS = 3
FEW_REQUESTS = 2 * PARTS
CONFIDENCE = 0.975
# Of an overload the latency of the first tenth is long, too: it counts up to this share of a level.
MOST_FIRST = 0.25
# Beyond this share of requests that nobody answered they count as waiting to the end; fewer are
# faults of their own, and leave the backlog when the client gives up.
MOST_GIVEN_UP = 0.05
# A client is too late above this, and above this share of the same percentile of the latency:
# beside the median alone, a p99 of any machine with few cores is late.
MOST_LATENESS = 1e-3
MOST_LATENESS_SHARE = 0.05


def saturation(times: RequestTimes, window: tuple[float, float], *, closed: bool) -> Saturation:
    """Return the slope of the backlog over the window, with its 95 % interval.

    The slope is the mean of the backlog's changes over 40 parts of the window; of few requests over
    parts of three, from the level's begin to its last request. A queue that is just not overloaded
    wanders like a sum of such changes, so their scatter (with their correlation, where it is
    positive) is what chance can do; the backlog of a lower load is held back, which makes the test
    cautious there. A request counts from when the first ones would have been answered: until they
    are, what is due adds up at any load.

    Args:
        times: All requests of the level.
        window: Begin and end of the steady window in seconds.
        closed: Whether requests wait for answers, so that no backlog can grow.
    """
    begin, end = window
    if closed or end <= begin:
        return Saturation(saturated=None)
    due, ended = np.sort(times.scheduled), np.sort(_ends(times))
    parts = PARTS
    if np.count_nonzero((due >= begin) & (due < end)) < FEW_REQUESTS:
        begin, end = 0.0, float(due[-1]) if due.size else 0.0
        parts = min(due.size // PART_REQUESTS, PARTS)
    edges = np.linspace(begin, end, parts + 1)
    done = np.searchsorted(ended, edges, side="right")
    last = int(np.searchsorted(due, end, side="right") - done[-1])
    if parts < FEWEST_PARTS or end <= begin:
        return Saturation(saturated=None, backlog=last)
    late = due + min(_first_latency(times), MOST_FIRST * end)
    backlog = np.searchsorted(late, edges, side="right") - done
    changes = np.diff(backlog) * (parts / (end - begin))
    slope = float(changes.mean())
    effective = parts / initial_positive_sequence(changes)
    freedom = max(effective - 1, 1.0)
    student = float(imported("scipy.special").stdtrit(freedom, CONFIDENCE))
    # A single request is no backlog, whatever the scatter.
    single = 1 / (end - begin)
    reach = max(student * float(changes.std(ddof=1)) / math.sqrt(effective), single)
    return Saturation(
        saturated=slope > reach,
        slope=slope,
        interval=Interval(low=slope - reach, high=slope + reach, scope="process"),
        backlog=last,
    )


def _first_latency(times: RequestTimes) -> float:
    """Return the mean latency of the first tenth of the requests, of those that were answered."""
    first = times.latency[: max(1, times.latency.size // 10)]
    first = first[np.isfinite(first)]
    return float(first.mean()) if first.size else 0.0


def _ends(times: RequestTimes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return when each request left the backlog; infinite for what waits to the end."""
    ends = np.where(np.isnan(times.last), times.scheduled, times.last)
    # A time-out has no answer, but a moment at which the client gave up may be known.
    given_up = times.waiting & np.isnan(times.last)
    overloaded = times.waiting.sum() > MOST_GIVEN_UP * times.waiting.size
    return np.where(times.waiting if overloaded else given_up, np.inf, ends)


def with_limit(client: ClientLoad, latency: Distribution | None) -> ClientLoad:
    """Mark a client without open files, or later than 1 ms and 5 % of median or p99 latency."""
    limited = client.open_files is not None or any(
        latency is not None and late is not None and late > _allowed(latency, fraction)
        for fraction, late in ((0.5, client.lateness), (0.99, client.lateness_p99))
    )
    return msgspec.structs.replace(client, limited=limited)


def _allowed(latency: Distribution, fraction: float) -> float:
    """Return the most lateness: by the percentile, or the highest below it that is known."""
    percentiles = [p.value for p in latency.percentiles if p.fraction <= fraction]
    return max(MOST_LATENESS, MOST_LATENESS_SHARE * max(percentiles, default=latency.low))


def client_warnings(client: ClientLoad) -> tuple[MeasurementWarning, ...]:
    """Return the warning of a level at which the client was the limit: it measured itself."""
    if not client.limited:
        return ()
    if client.open_files is not None:
        return (MeasurementWarning(
            id="open-files",
            message=f"The client may open {client.open_files:,} files (ulimit -n): "
            f"{client.waited:,} requests waited for one. Their latencies are the client's.",
            probe="serving",
            remedy="Raise the limit (ulimit -n 65536), or share the requests (--processes).",
        ),)  # fmt: skip
    parts = [f"The client sent requests late: p99 {units.time(client.lateness_p99)}"]
    if client.waiting is not None:
        parts.append(f"waiting for a core {units.significant(client.waiting * 100)} % of the time")
    if client.cpu is not None:
        parts.append(f"a request takes {units.time(client.cpu, 3)} of its CPU")
    return (
        MeasurementWarning(
            id="client-limited",
            message=f"{', '.join(parts)}. The latencies are the client's as much as the server's.",
            probe="serving",
            cause="It had too little CPU for this rate, or shares its cores with the server.",
            remedy="More client processes (--processes), another machine, or a lower rate; "
            "`torchgauge doctor` names what else takes its cores.",
        ),
    )
