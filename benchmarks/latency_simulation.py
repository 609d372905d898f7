"""Check the latency statistics against noise whose truth is known, through the whole `sample()`.

Every figure is a share over simulated measurements on a fake clock: how often the median's 95 %
interval holds the true median, whether warm-up ends up in the result, how often a step is
flagged, how often there is a false alarm. `python benchmarks/latency_simulation.py` prints the
table in about ten minutes on two cores (2,000 runs a row); `--runs 500` takes a quarter of that.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from torchgauge.analyze.latency.latency import combine
from torchgauge.analyze.statistics.autocorrelation import independent_samples
from torchgauge.analyze.statistics.percentiles import samples_needed
from torchgauge.measure.latency.latency_options import SamplingPlan
from torchgauge.measure.latency.sampling import Timing, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALL = 0.010
BLOCK = 4096


class FakeClock:
    """A clock that only a call moves."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        """Return the nanoseconds of all calls so far."""
        return self.time


@dataclass(frozen=True)
class Machine:
    """Latencies of a simulated machine: 10 ms, log-AR(1) noise, and what goes wrong.

    `slower` are (from, to, factor) over sample numbers after the first call; `shape` is the
    noise's distribution on the log scale; `mixture` is (share, distance in spreads).
    """

    spread: float = 0.04
    correlation: float = 0.0
    slower: tuple[tuple[int, float, float], ...] = ()
    shape: str = "normal"
    mixture: tuple[float, float] | None = None

    def calls(self, clock: FakeClock, seed: int) -> Callable[[], Timing]:
        """Return a call that takes its next duration on `clock`."""
        durations = self._durations(np.random.default_rng(seed))

        def call() -> Timing:
            total = next(durations)
            clock.time += total
            return Timing(total)

        return call

    def _durations(self, rng: np.random.Generator) -> Iterator[int]:
        yield int(CALL * 3e9)
        state, start = float(rng.normal()), 0
        while True:
            noise = self._noise(rng, state)
            state = float(noise[-1])
            if self.shape == "gamma":
                factor = rng.gamma(4, self.spread / 2, BLOCK) + 1
            else:
                factor = np.exp(self.spread * noise)
            if self.mixture is not None:
                share, distance = self.mixture
                factor *= np.exp(self.spread * distance * (rng.random(BLOCK) < share))
            number = np.arange(start, start + BLOCK)
            for first, last, by in self.slower:
                factor[(number >= first) & (number < last)] *= by
            start += BLOCK
            yield from (CALL * 1e9 * factor).astype(np.int64).tolist()

    def _noise(self, rng: np.random.Generator, state: float) -> np.ndarray:
        fresh = rng.normal(size=BLOCK)
        if self.correlation == 0:
            return fresh
        from scipy.signal import lfilter

        fresh *= math.sqrt(1 - self.correlation**2)
        after = [self.correlation * state]
        return np.asarray(lfilter([1], [1, -self.correlation], fresh, zi=after)[0])


@dataclass(frozen=True)
class Row:
    """One simulated situation; the first `warmup_ends` samples are warm-up."""

    name: str
    machine: Machine
    plan: SamplingPlan = field(default_factory=lambda: SamplingPlan(budget=600.0))
    warmup_ends: int = 0

    @property
    def median_known(self) -> bool:
        """Whether the machine's true median is 10 ms."""
        machine = self.machine
        step = any(last == math.inf for _, last, _ in machine.slower)
        return machine.shape == "normal" and machine.mixture is None and not step


@dataclass(frozen=True)
class Outcome:
    """What one simulated measurement gave."""

    covered: bool
    samples: int
    warmup_left_in: int
    p99_wrong: bool
    warnings: frozenset[str]


def simulate(row: Row, seed: int) -> Outcome:
    """Measure once on the simulated machine."""
    clock = FakeClock()
    run = sample(row.machine.calls(clock, seed), clock, row.plan)
    latency = combine([run])
    interval = latency.interval
    ids = frozenset(warning.id for warning in latency.warnings)
    few = independent_samples(run.steady_samples, 0.99) < samples_needed(0.99)
    flagged = "p99-n-too-small" in ids and latency.percentile_intervals["p99"] is None
    return Outcome(
        covered=interval is not None and interval.low <= CALL <= interval.high,
        samples=len(run.samples),
        warmup_left_in=max(0, row.warmup_ends - run.warmup),
        p99_wrong=few != flagged,
        warnings=ids,
    )


def _batch(job: tuple[Row, int, int]) -> list[Outcome]:
    row, first, last = job
    return [simulate(row, seed) for seed in range(first, last)]


def outcomes(row: Row, runs: int, pool: ProcessPoolExecutor | None = None) -> list[Outcome]:
    """Measure `runs` times, with seeds 0, 1, 2 and so on."""
    step = max(1, runs // 8)
    jobs = [(row, first, min(first + step, runs)) for first in range(0, runs, step)]
    batches = pool.map(_batch, jobs) if pool else map(_batch, jobs)
    return [outcome for batch in batches for outcome in batch]


NOISES = {"iid": 0.0, "AR(.5)": 0.5, "AR(.8)": 0.8}
STEP_WARNINGS = frozenset({"drift", "several-modes", "not-steady"})


def coverage_rows() -> list[Row]:
    """Return the situations without a fault, where all alarms are false."""
    rows = []
    for name, correlation in NOISES.items():
        rows += [
            Row(f"{name}, {100 * s:.0f} %", Machine(spread=s, correlation=correlation))
            for s in (0.03, 0.05)
        ]
    return rows


def warmup_rows() -> list[Row]:
    """Return the situations with a slow start of +30 %."""
    return [
        Row(
            f"{name}, +30 % for {end}",
            Machine(spread=s, correlation=correlation, slower=((0, end, 1.3),)),
            warmup_ends=end,
        )
        for end in (20, 60)
        for (name, correlation), s in zip(NOISES.items(), (0.03, 0.05, 0.05), strict=True)
    ]


def step_rows() -> list[Row]:
    """Return the situations where the machine gets 10 % slower in mid-run."""
    rows = []
    for count in (200, 400):
        for name, correlation in NOISES.items():
            for place, warmup in ((1 / 3, None), (1 / 2, None), (1 / 2, 0), (2 / 3, None)):
                first = round(count * place)
                machine = Machine(correlation=correlation, slower=((first, math.inf, 1.1),))
                given = "" if warmup is None else ", no warm-up"
                label = f"{name}, step at {first} of {count}{given}"
                rows.append(Row(label, machine, SamplingPlan(warmup, count)))
    return rows


def adaptive_step_rows() -> list[Row]:
    """Return the same step where the sampling stops by itself, before the step or after it."""
    return [
        Row(
            f"{name}, step at {first}",
            Machine(correlation=correlation, slower=((first, math.inf, 1.1),)),
        )
        for name, correlation in NOISES.items()
        for first in (50, 75, 120)
    ]


def mode_rows() -> list[Row]:
    """Return the situations with two modes, and skewed ones with one."""
    rows = [
        Row(
            f"{100 - 100 * share:.0f}/{100 * share:.0f}, {distance} spreads apart, n = {count}",
            Machine(mixture=(share, distance)),
            SamplingPlan(0, count),
        )
        for share in (0.5, 0.2)
        for distance in (5, 6)
        for count in (150, 500)
    ]
    skewed = {
        "lognormal 50 %": Machine(spread=0.5),
        "1 + gamma(4)/10": Machine(shape="gamma", spread=0.2),
        "AR(.8)": Machine(correlation=0.8),
    }
    for name, machine in skewed.items():
        rows += [Row(f"{name}, n = {n}", machine, SamplingPlan(0, n)) for n in (100, 300, 1000)]
    return rows


def share(found: list[Outcome], *ids: str) -> float:
    """Return the share of measurements with one of these warnings."""
    return sum(bool(outcome.warnings & set(ids)) for outcome in found) / len(found)


HEAD = ("held %", "samples", "bad runs", "drift %", "modes %", "unsteady %", "any %", "p99 wrong")


def summary(row: Row, found: list[Outcome]) -> tuple[float, ...]:
    """Return the table's figures in the order of `HEAD`."""
    held = 100 * sum(outcome.covered for outcome in found) / len(found)
    return (
        held if row.median_known else math.nan,
        sum(outcome.samples for outcome in found) / len(found),
        sum(outcome.warmup_left_in > 0 for outcome in found),
        100 * share(found, "drift"),
        100 * share(found, "several-modes"),
        100 * share(found, "not-steady"),
        100 * share(found, *STEP_WARNINGS),
        sum(outcome.p99_wrong for outcome in found),
    )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    sections = {
        "Until ±1 %, no fault: every flag is a false alarm": coverage_rows(),
        "A slow start of +30 %: no warm-up sample may be among the steady ones": warmup_rows(),
        "A step of +10 % in 4 % noise, fixed iterations": step_rows(),
        "A step of +10 % in 4 % noise, until ±1 %": adaptive_step_rows(),
        "Modes: two, and then one": mode_rows(),
    }
    with ProcessPoolExecutor(options.processes) as pool:
        for title, rows in sections.items():
            print(f"\n{title}\n{'':42}" + "".join(f"{name:>11}" for name in HEAD))
            for row in rows:
                figures = summary(row, outcomes(row, options.runs, pool))
                cells = ("" if math.isnan(figure) else f"{figure:.1f}" for figure in figures)
                print(f"{row.name:42}" + "".join(f"{cell:>11}" for cell in cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
