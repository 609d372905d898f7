"""Whether the latency drifted while it was measured: Theil–Sen and Kendall on batch medians."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from torchgauge import units
from torchgauge.analyze.latency.noise import FAULTING, PAGE_FAULT
from torchgauge.analyze.latency.stopping import MIN_SAMPLES, WarmUp
from torchgauge.analyze.statistics.autocorrelation import (
    BATCHES,
    autocorrelation_time,
    batch_medians,
    cautious,
    independent_samples,
    noise_tau,
)
from torchgauge.analyze.statistics.median import median_interval
from torchgauge.analyze.statistics.percentiles import PERCENTILES, samples_needed
from torchgauge.records.latency.latency import LatencyRun, Stop
from torchgauge.records.record import Interval, MeasurementWarning

_Floats = npt.NDArray[np.float64]


BATCH_IN_TAU = 5
SIGNIFICANCE = 0.01


class Drift(NamedTuple):
    """The change over the whole run as a fraction of the median, and Kendall's p."""

    change: float
    p: float

    @property
    def significant(self) -> bool:
        """Whether p < .01."""
        return self.p < SIGNIFICANCE


def find_drift(samples: npt.ArrayLike) -> Drift | None:
    """Return the trend of the steady samples (seconds, in order), or None if insignificant.

    None where a batch (1/20 of the samples) is shorter than 5τ, τ about the trend: neighbouring
    batch medians would move together by noise alone.

    Source: Theil (1950), Sen (1968), Kendall (1938).
    """
    x = np.asarray(samples, dtype=np.float64)
    middle = float(np.median(x)) if x.size else 0.0
    if x.size < BATCHES * BATCH_IN_TAU or middle <= 0:
        return None
    medians = batch_medians(x)
    if np.ptp(medians) == 0:
        return Drift(0.0, 1.0)
    if x.size < BATCHES * BATCH_IN_TAU * noise_tau(x):
        return None
    earlier, later = np.triu_indices(BATCHES, 1)
    steps = medians[later] - medians[earlier]
    slope = float(np.median(steps / (later - earlier)))
    return Drift(slope * (BATCHES - 1) / middle, _kendall_p(float(np.sign(steps).sum()), BATCHES))


def _kendall_p(rising: float, count: int) -> float:
    """Return the exact two-sided p of so many more rising pairs of `count` values than falling.

    The k-th of values in random order falls below 0 … k - 1 of those before it, each as likely.
    scipy.stats has this as well; to import it takes as long as a short run.
    """
    falling = np.ones(1)
    for before in range(1, count):
        falling = np.convolve(falling, np.full(before + 1, 1 / (before + 1)))
    difference = falling.size - 1 - 2 * np.arange(falling.size)
    return min(1.0, float(falling[np.abs(difference) >= abs(rising)].sum()))


COARSE = 0.01
MANY_PAGE_FAULTS = 0.05
"""The share of a call spent in page faults, at a microsecond each, from which on to warn."""
PASSING = frozenset({"drift", "not-steady", "several-modes", "warm-up-short", "too-few-samples"})

MIN_STEP_SAMPLES = 100
CRITICAL = 1.628
"""What the largest excursion of a Brownian bridge exceeds in 1 % (Kolmogorov)."""


def warning(id: str, message: str, remedy: str = "") -> MeasurementWarning:
    """Return a warning of the latency probe."""
    return MeasurementWarning(id=id, message=message, probe="latency", remedy=remedy)


def run_warnings(
    steady: _Floats, warmup: WarmUp, clock_resolution: float | None
) -> Iterator[MeasurementWarning]:
    """Yield the warnings on one process's steady samples (seconds, in order)."""
    middle = float(np.median(steady))
    yield from _steadiness(steady, warmup)
    yield from _drift(steady)
    yield from _modes(steady)
    yield from _clock(middle, clock_resolution)


def _steadiness(steady: _Floats, warmup: WarmUp) -> Iterator[MeasurementWarning]:
    if warmup.end_found:
        return
    if steady.size < MIN_SAMPLES:
        yield warning(
            "too-few-samples",
            f"The end of the warm-up cannot be found with fewer than {MIN_SAMPLES} steady samples.",
            f"Take {MIN_SAMPLES} samples or more.",
        )
        return
    yield warning(
        "not-steady",
        "No end of the warm-up was found: the latency was still changing half-way through.",
        "Measure for longer, or give the warm-up.",
    )


def early_warnings(
    early: _Floats, settled: _Floats, *, warmup_given: bool
) -> Iterator[MeasurementWarning]:
    """Yield the warnings on the samples that the data call warm-up, against the `settled` ones.

    Faster ones are no warm-up: the machine got slower. Slower ones are amiss only where the user
    has set the warm-up and left them in.
    """
    tau = autocorrelation_time(settled)
    before, after = median_interval(early, tau), median_interval(settled, tau)
    if before is None or after is None:
        return
    early_median = units.time(float(np.median(early)))
    settled_median = units.time(float(np.median(settled)))
    if before.high < after.low:
        yield warning(
            "drift",
            f"The first {early.size} calls were faster: the latency rose from {early_median} "
            f"to {settled_median} and stayed there.",
            "Look for thermal throttling and for other load on the machine.",
        )
    elif warmup_given and before.low > after.high:
        yield warning(
            "warm-up-short",
            f"The first {early.size} samples after the given warm-up were slower ({early_median}, "
            f"then {settled_median}) and are part of the result.",
            "Give a longer warm-up, or leave it to the data.",
        )


def _drift(steady: _Floats) -> Iterator[MeasurementWarning]:
    remedy = "Look for thermal throttling and for other load on the machine."
    step, drift = find_step(steady), find_drift(steady)
    if step is not None:
        change = units.percent(abs(step.change))
        comparative = "higher" if step.change > 0 else "lower"
        yield warning(
            "drift",
            f"The latency moved while it was measured: its median is {change} {comparative} from "
            f"steady sample {step.sample_index} on.",
            remedy,
        )
    elif drift is not None and drift.significant:
        change = units.percent(abs(drift.change))
        verb = "rose" if drift.change > 0 else "fell"
        yield warning("drift", f"The latency {verb} by {change} while it was measured.", remedy)


def _modes(steady: _Floats) -> Iterator[MeasurementWarning]:
    modes = find_modes(steady)
    if modes is not None:
        yield warning(
            "several-modes",
            f"The latency has several modes: {units.percent(1 - modes.slower_share)} of the calls "
            f"near {units.time(modes.faster)}, {units.percent(modes.slower_share)} near "
            f"{units.time(modes.slower)}. The median is one of them or lies between.",
            "Look at the samples; changing clocks, cores or inputs are usual causes.",
        )


def _clock(middle: float, resolution: float | None) -> Iterator[MeasurementWarning]:
    if middle <= 0 or (resolution is not None and resolution > COARSE * middle):
        step = units.time(resolution)
        yield warning(
            "timer-coarse",
            f"The clock's step ({step}) is more than 1 % of the median ({units.time(middle)}).",
            "Time a larger input, or several calls as one.",
        )


def precision_warnings(
    interval: Interval | None, median: float, stop: Stop, processes: int
) -> Iterator[MeasurementWarning]:
    """Yield that the median's interval is absent, or wider than requested."""
    if interval is None and processes == 2:
        yield warning(
            "no-interval",
            "Two processes do not show how much processes vary: the median has no interval.",
            "Measure in three processes or more.",
        )
    elif interval is None:
        yield warning(
            "no-interval",
            "The samples are too few, or too strongly correlated, for an interval of the median.",
            "Take more samples.",
        )
    elif interval.short:
        share = interval.half_width / median if median > 0 else None
        error = units.percent(share, smallest=1e-5)
        repetitions = "iterations" if processes == 1 else "processes"
        yield warning(
            "interval-short",
            f"The median is known to ±{error} only ({stop}).",
            f"Give a longer time budget or more {repetitions}.",
        )


def percentile_warnings(runs: Sequence[LatencyRun]) -> Iterator[MeasurementWarning]:
    """Yield which percentiles rest on too few independent samples for an interval."""
    samples = sum(len(run.steady_samples) for run in runs)
    for name, share in PERCENTILES.items():
        independent = sum(independent_samples(run.steady_samples, share) for run in runs)
        if independent < (needed := samples_needed(share)):
            yield warning(
                f"{name}-n-too-small",
                f"{name} needs {needed} independent samples for an interval; the {samples} "
                f"samples are worth {independent:.0f}.",
                f"Take about {needed * samples / independent:.0f} samples.",
            )


def page_fault_warnings(runs: Sequence[LatencyRun]) -> Iterator[MeasurementWarning]:
    """Yield that calls get their memory on the host from the system again and again."""
    times = [(run.median, run.yardstick.get(FAULTING, 0.0)) for run in runs]
    counts = [time / PAGE_FAULT for call, time in times if time > MANY_PAGE_FAULTS * call]
    if counts:
        scope = "" if len(counts) == len(runs) else f" in {len(counts)} of {len(runs)} processes"
        yield MeasurementWarning(
            id="page-faults",
            message=f"Each call takes about {statistics.median(counts):,.0f} page faults{scope}.",
            probe="latency",
            cause="The C library gives memory that a call frees back to the system, and the next "
            "call asks for it again. Whether it does so depends on how blocks happen to lie, so "
            "that processes differ.",
            remedy="Try malloc settings that keep it: `advise --candidates malloc-keep`.",
        )


def merged_warnings(runs: Sequence[LatencyRun]) -> Iterator[MeasurementWarning]:
    """Yield the warnings of the processes, each once, and say how many processes have it.

    What happens within a process now and then (`PASSING`) is told where half of them have it: what
    it does to the median is part of what processes differ by.
    """
    by_id: dict[str, list[MeasurementWarning]] = {}
    for run in runs:
        for run_warning in run.warnings:
            by_id.setdefault(run_warning.id, []).append(run_warning)
    for occurrences in by_id.values():
        if len(runs) == 1:
            yield occurrences[0]
        elif occurrences[0].id not in PASSING or 2 * len(occurrences) >= len(runs):
            prefix = f"In {len(occurrences)} of {len(runs)} processes: "
            yield msgspec.structs.replace(occurrences[0], message=prefix + occurrences[0].message)


class Step(NamedTuple):
    """The first sample after the step, and the change there as a fraction."""

    sample_index: int
    change: float


def find_step(samples: npt.ArrayLike) -> Step | None:
    """Return the step in the steady samples (seconds, in order), or None where there is none.

    S_k is the sum over the first k samples of the signs of x − median. Without a step
    max|S_k|/sqrt(n·τ') is that of a Brownian bridge; τ' is about the trend. It sees what a rank
    correlation over batches does not: a step late in the run, and one in correlated noise that is
    too short for batches of 5τ. None below 100 samples.

    Source: Ploberger & Krämer, "The CUSUM test with OLS residuals", Econometrica 60 (1992), on
    signs.
    """
    x = np.asarray(samples, dtype=np.float64)
    if x.size < MIN_STEP_SAMPLES or np.ptp(x) == 0:
        return None
    signs = np.sign(x - np.median(x))
    sums = np.abs(np.cumsum(signs - signs.mean()))
    sample_index = int(np.argmax(sums)) + 1
    scale = float(signs.std()) * math.sqrt(x.size * cautious(noise_tau(x), x.size))
    if sample_index == x.size or scale == 0 or sums[sample_index - 1] < CRITICAL * scale:
        return None
    before, after = float(np.median(x[:sample_index])), float(np.median(x[sample_index:]))
    if before <= 0:
        return None
    return Step(sample_index, after / before - 1)


MIN_MODE_SAMPLES = 60
VALLEY = 0.05
PEAK = 0.10
CRITICAL_DIP = 4.5
SHALLOWEST = math.log(1.5)
NEAREST = 0.01
TICKS = 2.5


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
    if x.size < MIN_MODE_SAMPLES:
        return None
    ordered = np.sort(x)
    tick = _tick(ordered)
    valley = _deepest(_spread_ties(ordered, tick))
    if valley is None or valley.depth < max(SHALLOWEST, CRITICAL_DIP / math.sqrt(VALLEY * x.size)):
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
