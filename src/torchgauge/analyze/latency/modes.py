"""Whether the latencies have several modes: a valley between two peaks of the density."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MIN_SAMPLES = 60
VALLEY = 0.05
PEAK = 0.10
CRITICAL = 4.5
SHALLOWEST = math.log(1.5)
NEAREST = 0.01
TICKS = 2.5

_Floats = npt.NDArray[np.float64]


class Modes(NamedTuple):
    """Two modes in seconds, the valley between them, and the share of samples in the slower."""

    faster: float
    slower: float
    valley: float
    slower_share: float


class _Valley(NamedTuple):
    depth: float
    place: float


def find_modes(samples: npt.ArrayLike) -> Modes | None:
    """Return the two sides of the deepest valley in the density of `samples`, or None.

    The density over a window of the sorted samples is its count over its width, and the log of that
    has a standard error of 1/sqrt(count) whatever the distribution. The depth of a valley is
    the log ratio between the density in the densest 10 % of samples on either side, the smaller of
    the two, and in the 5 % that lie widest apart. It counts from 4.5/sqrt(5 % of n) upwards, where
    the density falls by a third at least, and where the modes lie 1 % and three ticks of the clock
    apart at least. Modes with fewer than a tenth of the samples are tails. None below 60 samples.

    Simulated: at most 1 % of normal, lognormal, gamma, exponential and Student samples are taken
    for several modes, no more under AR(.9) noise, and 2 % of uniform ones. No autocorrelation time
    enters: a machine that stays in one state for long has a large one, which would excuse the
    states to be found.
    """
    x = np.asarray(samples, dtype=np.float64)
    if x.size < MIN_SAMPLES:
        return None
    ordered = np.sort(x)
    tick = _tick(ordered)
    valley = _deepest(_spread_ties(ordered, tick))
    if valley is None or valley.depth < max(SHALLOWEST, CRITICAL / math.sqrt(VALLEY * x.size)):
        return None
    slow = x > valley.place
    if slow.all() or not slow.any():  # the valley is a tick of the clock
        return None
    modes = Modes(
        faster=float(np.median(x[~slow])),
        slower=float(np.median(x[slow])),
        valley=valley.place,
        slower_share=float(slow.mean()),
    )
    nearest = max(NEAREST * float(np.median(x)), TICKS * tick)
    return None if modes.slower - modes.faster < nearest else modes


def _deepest(x: _Floats) -> _Valley | None:
    in_valley, in_peak = round(VALLEY * x.size), round(PEAK * x.size)
    gaps = (x[in_valley:] - x[:-in_valley]) / in_valley
    packed = (x[in_peak:] - x[:-in_peak]) / in_peak
    from_left = np.minimum.accumulate(packed)
    from_right = np.minimum.accumulate(packed[::-1])[::-1]
    # A valley from sample i to i + in_valley has one peak before i and one after its end.
    start = np.arange(in_peak, packed.size - in_valley)
    peaks = np.maximum(from_left[start - in_peak], from_right[start + in_valley])
    if start.size == 0 or not peaks.all():
        return None
    depths = np.log(gaps[start] / peaks)
    best = int(start[int(np.argmax(depths))])
    widest = best + int(np.argmax(np.diff(x[best : best + in_valley + 1])))
    return _Valley(float(depths.max()), float((x[widest] + x[widest + 1]) / 2))


def _tick(ordered: _Floats) -> float:
    """Return the smallest step between two different samples, in seconds."""
    steps = np.diff(ordered)
    return float(steps[steps > 0].min(initial=math.inf)) if steps.any() else 0.0


def _spread_ties(ordered: _Floats, tick: float) -> _Floats:
    """Return sorted values with equal ones spread evenly over the tick of a coarse clock."""
    _, first, counts = np.unique(ordered, return_index=True, return_counts=True)
    within = np.arange(ordered.size) - np.repeat(first, counts)
    return np.asarray(ordered + tick * ((within + 0.5) / np.repeat(counts, counts) - 0.5))
