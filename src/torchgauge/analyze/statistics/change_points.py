"""Change points of a series of runs: where the level moved, by how much, against noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.imports import imported
from torchgauge.records.record import Interval

# A level is told from five runs on; fewer may be one bad night of a shared machine.
MIN_RUNS = 5
# What a change must gain in twice the log-likelihood, found by simulation
# (benchmarks/history_trends.py): series without a change have one in less than 1 %.
PENALTY = 20.0
# More changes than this in one series are noise of another kind.
MAX_CHANGES = 8
# The smallest change that is reported, and the smallest noise that is assumed.
SMALLEST = 0.01
MIN_NOISE = 1e-4
# Twice the log-likelihood within which another place of the change is as good; by simulation.
BOUNDARY_TOLERANCE = 8.0
# Runs further from their neighbours' median than so many deviations count as if they were there.
MAX_DEVIATIONS = 2.5
WINDOW = 9

Lasting = Literal["stays", "went away", "return"]
_Floats = npt.NDArray[np.float64]


class Change(NamedTuple):
    """A move of the level: `start` is the first run of the new level.

    It happened after run `first` and up to run `last`. `size` is relative (0.05 is 5 % more);
    `interval` is its 95 % interval, None where the figures are exact.
    """

    start: int
    first: int
    last: int
    size: float
    interval: Interval | None
    lasting: Lasting = "stays"


class _Noise(NamedTuple):
    """AR(1) noise: log-`likelihood` of the residuals, their variance and correlation.

    `inflation` is how many times the variance of a mean is that of independent runs.
    """

    likelihood: float
    variance: float
    correlation: float
    inflation: float


def exact_changes(values: Sequence[float]) -> list[Change]:
    """Return every change of an exact figure.

    What was 0 before has no relative size: its change counts as 1, all of it is new.
    """
    steps = []
    for position in range(1, len(values)):
        before, after = values[position - 1], values[position]
        if before != after:
            size = after / before - 1 if before else 1.0
            steps.append(Change(position, position - 1, position, size, None))
    levels = [values[0], *(values[change.start] for change in steps)] if values else []
    equal_levels = [[a == b for b in levels] for a in levels]
    return _with_lasting(steps, equal_levels)


def changes(values: Sequence[float], series: int = 1, smallest: float = SMALLEST) -> list[Change]:
    """Return the changes of a measured series (all values above 0) that its noise does not explain.

    The best segmentations into one level and more (least squares on logarithms, exact) are judged
    as levels with AR(1) noise: each change must gain `PENALTY`, more where many `series` are
    looked at together. Runs far from their neighbours are drawn in first, so that a spike makes no
    level. Fewer than ten values have no changes. Raises MissingExtraError for ruptures.
    """
    if len(values) < 2 * MIN_RUNS:
        return []
    logs = _without_spikes(np.log(np.asarray(values, dtype=np.float64)))
    price = PENALTY + 2 * math.log(series)
    ends, noise = _segments(logs, price)
    levels = [float(part.mean()) for part in np.split(logs, ends)]
    bounds = [0, *ends, logs.size]
    steps, step_numbers = [], []
    for number, end in enumerate(ends):
        error = _error(noise, end - bounds[number], bounds[number + 2] - end)
        step = levels[number + 1] - levels[number]
        first, last = _place(logs, bounds[number : number + 3], noise)
        low, high = math.expm1(step - 1.96 * error), math.expm1(step + 1.96 * error)
        size = math.expm1(step)
        change = Change(end, first, last, size, Interval(low=low, high=high))
        if abs(size) >= smallest:
            steps.append(change)
            step_numbers.append(number)
    step_levels = [levels[0], *(levels[number + 1] for number in step_numbers)]
    near = max(smallest, 1.96 * _error(noise, MIN_RUNS, MIN_RUNS))
    return _with_lasting(steps, [[abs(a - b) <= near for b in step_levels] for a in step_levels])


def _segments(logs: _Floats, price: float) -> tuple[list[int], _Noise]:
    """Return the ends of all levels but the last, and the noise about them."""
    ruptures = imported("ruptures")  # half a second: only when changes are searched
    search = ruptures.KernelCPD(kernel="linear", min_size=MIN_RUNS, jump=1).fit(logs.reshape(-1, 1))
    best: tuple[list[int], _Noise] = ([], _noise(logs - logs.mean()))
    gain = 2 * best[1].likelihood
    for count in range(1, min(MAX_CHANGES, logs.size // MIN_RUNS - 1) + 1):
        ends = search.predict(n_bkps=count)[:-1]
        noise = _noise(np.concatenate([part - part.mean() for part in np.split(logs, ends)]))
        if 2 * noise.likelihood - count * price > gain:
            gain = 2 * noise.likelihood - count * price
            best = ([int(end) for end in ends], noise)
    return best


def _noise(residuals: _Floats) -> _Noise:
    """Return the AR(1) noise that fits best, so that wandering runs do not count as a change."""
    before, after = residuals[:-1], residuals[1:]
    power = float(before @ before)
    slope = float(before @ after) / power if power else 0.0
    correlation = min(max(slope, 0.0), 0.95)
    fresh = 1 - correlation**2
    moves = after - correlation * before
    squares = float(moves @ moves) + fresh * float(residuals[0] ** 2)
    variance = max(squares / residuals.size, MIN_NOISE**2)
    likelihood = 0.5 * math.log(fresh) - 0.5 * residuals.size * math.log(variance)
    # Residuals about fitted levels look less correlated than the noise is (Kendall's bias).
    unbiased = min(correlation + (1 + 4 * correlation) / residuals.size, 0.95)
    inflation = (1 + unbiased) / (1 - unbiased)
    return _Noise(likelihood, variance / fresh, correlation, inflation)


def _error(noise: _Noise, before: int, after: int) -> float:
    """Return the standard error of a step between two levels, by their numbers of runs."""
    return math.sqrt(noise.variance * noise.inflation * (1 / before + 1 / after))


def _place(logs: _Floats, bounds: Sequence[int], noise: _Noise) -> tuple[int, int]:
    """Return the last run certainly before the change and the first certainly after it."""
    begin, boundary, end = bounds
    part = logs[begin:end]
    fits = {}
    for cut in range(1, part.size):
        halves = (part[:cut], part[cut:])
        fits[begin + cut] = sum(float(((half - half.mean()) ** 2).sum()) for half in halves)
    variance = noise.variance * (1 - noise.correlation**2)
    good = [
        cut
        for cut, squares in fits.items()
        if squares - fits[boundary] <= BOUNDARY_TOLERANCE * variance
    ]
    return min(good) - 1, max(good)


def _without_spikes(logs: _Floats) -> _Floats:
    """Return the series with single runs far from their neighbours drawn in."""
    padded = np.pad(logs, WINDOW // 2, mode="reflect")
    medians = np.median(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1)
    away = logs - medians
    # Three quarters of normal noise are within 1.15 deviations; a quarter may be spikes.
    spread = float(np.quantile(np.abs(away), 0.75)) / 1.15
    # A deviation below the smallest reported change is no spike.
    room = max(MAX_DEVIATIONS * spread, SMALLEST)
    return medians + np.clip(away, -room, room)


def _with_lasting(steps: list[Change], equal_levels: list[list[bool]]) -> list[Change]:
    """Mark changes after which the former level came back; `equal_levels` is a matrix."""
    open_changes: list[int] = []
    lasting: list[Lasting] = ["stays"] * len(steps)
    for number in range(len(steps)):
        back = next((i for i in open_changes if equal_levels[i][number + 1]), None)
        if back is None:
            open_changes.append(number)
            continue
        for i in range(back, number):
            lasting[i] = "went away" if lasting[i] == "stays" else lasting[i]
        lasting[number] = "return"
        del open_changes[open_changes.index(back) :]
    return [step._replace(lasting=state) for step, state in zip(steps, lasting, strict=True)]
