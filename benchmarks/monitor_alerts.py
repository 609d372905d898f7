"""How often alerts on a monitor's level are wrong, and how soon they come: simulated days.

Latencies are lognormal, with a part of slow calls; the level follows the time of day, differs from
day to day and wanders from minute to minute. Windows are one minute, calls come about once a
second, more of them by day. The seeds are fixed.

    python benchmarks/monitor_alerts.py [--days-runs N] [--step-runs N] [--world NAME]
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from torchgauge.analyze.monitoring.level_blocks import Block, trimmed_mean
from torchgauge.analyze.monitoring.level_change import LevelChanges, level_changes
from torchgauge.records.monitoring.histogram import PER_OCTAVE

MINUTES = 1440
DAYS = 30
STEP_DAY = 8  # the day in which the step is
WITHIN = 1000  # calls


@dataclass(frozen=True)
class World:
    """How latencies differ: standard deviations are of logarithms.

    Attributes:
        name: Of the row.
        calls: From call to call.
        slow: The part of calls that are slow, three to ten times.
        minutes: From minute to minute, with `correlation`.
        correlation: Between minutes next to each other.
        days: From day to day, gradually; with `jumps` from one minute to the next.
        by_hour: The amplitude by the time of day.
        bad_minutes: A day, each three times as slow.
        per_second: Calls a second, on average.
    """

    name: str
    calls: float = 0.2
    slow: float = 0.01
    minutes: float = 0.01
    correlation: float = 0.8
    days: float = 0.03
    jumps: bool = False
    by_hour: float = 0.2
    bad_minutes: float = 1.0
    per_second: float = 1.0


WORLDS = (
    World("usual"),
    World("no correlation, no slow calls", slow=0.0, minutes=0.0, bad_minutes=0.0),
    World("calls differ by 10 %", calls=0.1),
    World("calls differ by 30 %", calls=0.3),
    World("calls differ by 50 %", calls=0.5),
    World("5 % slow calls", slow=0.05),
    World("minutes differ by 2 %", minutes=0.02),
    World("minutes correlated by 0.95", correlation=0.95),
    World("days differ by 6 %", days=0.06),
    World("days jump by 4 % at midnight", days=0.04, jumps=True),
    World("hours differ by 40 %", by_hour=0.4),
    World("0.2 calls a second", per_second=0.2),
)


def blocks(
    world: World, days: int, rng: np.random.Generator, step: float = 0.0, at: int = 0
) -> list[Block]:
    """Return the blocks of simulated days; the level is higher by `step` from minute `at` on."""
    minutes = np.arange(days * MINUTES)
    angle = 2 * math.pi * minutes / MINUTES
    level = math.log(0.05) + world.by_hour * np.sin(angle)
    level += _days(world, days, rng)
    level += _wandering(world, len(minutes), rng)
    level[rng.random(len(minutes)) < world.bad_minutes / MINUTES] += math.log(3)
    if step:
        level[at:] += math.log1p(step)
    counts = rng.poisson(60 * world.per_second * (1 + 0.6 * np.sin(angle - 1)))
    return _blocks(world, level, counts, rng)


def _days(world: World, days: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return what days differ by, gradually from noon to noon or, with `jumps`, at midnight."""
    offsets = rng.normal(0, world.days, days + 1)
    if world.jumps:
        return np.repeat(offsets[:-1], MINUTES)
    return np.interp(np.arange(days * MINUTES) / MINUTES, np.arange(days + 1), offsets)


def _wandering(world: World, length: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    from scipy.signal import lfilter

    fresh = rng.normal(0, world.minutes * math.sqrt(1 - world.correlation**2), length)
    wandering: npt.NDArray[np.float64] = lfilter([1.0], [1.0, -world.correlation], fresh)
    return wandering


def _blocks(
    world: World,
    level: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> list[Block]:
    """Return blocks as `blocks_of` makes them of one-minute windows, without making histograms."""
    logs = np.repeat(level, counts) + rng.normal(0, world.calls, counts.sum())
    slow = rng.random(len(logs)) < world.slow
    logs[slow] += rng.uniform(math.log(3), math.log(10), slow.sum())
    indices = np.ceil(logs / math.log(2) * PER_OCTAVE).astype(np.int64) - 1
    ends = np.cumsum(counts)
    made: list[Block] = []
    first = begin = 0
    for minute, end in enumerate(ends.tolist()):
        if end - first and minute + 1 - begin > 60:
            first, begin = end - counts[minute], minute
        if end - first >= 50:
            inside = indices[first:end]
            number = np.bincount(inside - inside.min())
            middles = (inside.min() + 0.5 + np.arange(len(number))) * (math.log(2) / PER_OCTAVE)
            made.append(Block((minute + 1) * 60.0, end - first, *trimmed_mean(middles, number)))
            first, begin = end, minute + 1
        elif end == first:
            begin = minute + 1
    return made


def false_alarms(world: World, runs: int) -> tuple[int, LevelChanges]:
    """Return the false alarms (rises of the level) of so many runs of 30 days."""
    alarms, last = 0, LevelChanges()
    for run in range(runs):
        last = level_changes(blocks(world, DAYS, np.random.default_rng(1000 + run)))
        alarms += sum(change.size > 0 for change in last.changes)
    return alarms, last


def found_within(world: World, runs: int, step: float) -> tuple[int, list[int]]:
    """Return in how many runs a step is found within 1,000 calls, and the calls of those found."""
    found, delays = 0, []
    for run in range(runs):
        rng = np.random.default_rng(5000 + run)
        at = STEP_DAY * MINUTES + int(rng.integers(MINUTES))
        series = blocks(world, STEP_DAY + 2, rng, step, at)
        begin = at * 60.0
        for change in level_changes(series, 0.1).changes:
            if change.detected > begin and change.size > 0:
                calls = sum(b.calls for b in series if begin < b.end <= change.detected)
                delays.append(calls)
                found += calls <= WITHIN
                break
    return found, delays


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days-runs", type=int, default=10, help="runs of 30 days a world")
    parser.add_argument("--step-runs", type=int, default=100, help="runs with a step a world")
    parser.add_argument("--world", action="append", default=[], help="only these, by name")
    options = parser.parse_args()
    print(f"{options.days_runs} runs of {DAYS} days, {options.step_runs} with a step of +10 %")
    print(f"{'world':32} {'alarms in 30 days':>18} {'found in 1,000 calls':>34} {'median':>8}")
    for world in WORLDS:
        if options.world and world.name not in options.world:
            continue
        alarms, last = false_alarms(world, options.days_runs)
        found, delays = found_within(world, options.step_runs, 0.1)
        interval = binomtest(found, options.step_runs).proportion_ci()
        print(
            f"{world.name:32} {alarms / options.days_runs:>10.2f} "
            f"(told from {100 * (last.smallest or math.nan):.0f} %) "
            f"{100 * found / options.step_runs:>12.0f} % "
            f"({100 * interval.low:.0f} … {100 * interval.high:.0f} %) "
            f"{np.median(delays) if delays else math.nan:>10.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
