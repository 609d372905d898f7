"""Distributions of times over requests, with the intervals that hold under queueing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.statistics import autocorrelation
from torchgauge.imports import imported
from torchgauge.records.record import Interval
from torchgauge.records.serving.requests import Distribution, Estimate, Percentile

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


FRACTIONS = (0.5, 0.9, 0.95, 0.99)
# Parts of a window whose counts give the interval of a rate.
PARTS = 30
CONFIDENCE = 0.975
_TOO_FEW = "Too few requests: those of a queue resemble each other."

_Floats = npt.NDArray[np.float64]


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
    all_fractions = sorted({*FRACTIONS, *fractions})
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
    student = float(imported("scipy.special").stdtrit(freedom, CONFIDENCE))
    return student * float(parts.std(ddof=1)) * math.sqrt(inflation / parts.size)
