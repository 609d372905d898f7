"""How often a trend cries wolf, how often it finds a step, and where it says that it happened.

Every row is a share over simulated series of runs, with its 95 % binomial interval (Clopper and
Pearson): false alarms on noise alone (white, heavy-tailed, with spikes, autocorrelated), then a
step in the middle of 60 runs. `python benchmarks/history_trends.py` takes a minute on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from torchgauge.analyze.statistics.change_points import Change, changes
from torchgauge.history.trend import series_correction

Floats = npt.NDArray[np.float64]
NOISE = 0.015
KINDS = ("matmul", "copy", "python", "dispatch", "waiting")
WEIGHTS = np.array((0.6, 0.1, 0.0, 0.2, 0.3))
SHAPES: dict[str, tuple[float, str]] = {
    "white": (0.0, "normal"),
    "heavy tails (t, 4)": (0.0, "heavy"),
    "3 % spikes of +30 %": (0.0, "spikes"),
    "AR(1) 0.3": (0.3, "normal"),
    "AR(1) 0.5": (0.5, "normal"),
    "AR(1) 0.7": (0.7, "normal"),
    "AR(1) 0.9": (0.9, "normal"),
}


def noise(count: int, shape: str, rng: np.random.Generator) -> Floats:
    """Return stationary noise on the log scale with a deviation of `NOISE` (but for spikes)."""
    correlation, kind = SHAPES[shape]
    drawn = count + 50
    fresh = rng.normal(size=drawn)
    if kind == "heavy":
        fresh = rng.standard_t(4, drawn) / np.sqrt(2)
    found = np.zeros(drawn)
    for i in range(1, drawn):
        found[i] = correlation * found[i - 1] + np.sqrt(1 - correlation**2) * fresh[i]
    spikes = (rng.random(drawn) < 0.03) * np.log(1.3) if kind == "spikes" else 0.0
    return (NOISE * found + spikes)[50:]


def share(name: str, hits: int, of: int) -> None:
    """Print a share with its interval."""
    interval = binomtest(hits, of).proportion_ci(0.95, "exact")
    within = f"{interval.low:.2%} … {interval.high:.2%}"
    print(f"  {name:<44}{hits:>6} of {of}   {hits / of:7.2%}   {within}")


def simulated(
    runs: int, count: int, shape: str, step: float, rng: np.random.Generator
) -> list[list[Change]]:
    """Return the changes found in `runs` series with a step of `step` in their middle."""
    level = np.where(np.arange(count) < count // 2, 0.0, np.log1p(step))
    return [changes(0.01 * np.exp(level + noise(count, shape, rng))) for _ in range(runs)]


def on_changing_machine(count: int, step: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return a latency with a step in the middle, as measured and corrected.

    Five kinds of reference work follow the machine, which is slower for a third of the time, and
    the latency follows them; each has noise of its own.
    """
    at = np.arange(count)
    slow = 0.12 * ((at >= count // 3) & (at < 2 * count // 3))
    machine = slow + 0.024 * rng.normal(size=count)
    work = machine[:, None] + 0.024 * rng.normal(size=(count, len(KINDS)))
    level = np.where(at < count // 2, 0.0, np.log1p(step))
    values = np.exp(work @ WEIGHTS + level + NOISE * rng.normal(size=count))
    times = [dict(zip(KINDS, map(float, row), strict=True)) for row in np.exp(work)]
    found = series_correction(values.tolist(), times, [""] * count)
    if found is None:
        return values, values
    return values, values / np.exp(np.array(found.log_ratios, dtype=np.float64))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    rng = np.random.default_rng(7)
    print("False alarms: series without a change in which one is reported")
    for count in (20, 60, 200):
        for shape in SHAPES:
            found = simulated(runs, count, shape, 0.0, rng)
            share(f"{count} runs, {shape}", sum(map(bool, found)), runs)
            stays = [any(one.lasting == "stays" for one in row) for row in found]
            if stays != list(map(bool, found)):
                share("    of which it stayed, as alerts ask", sum(stays), runs)
    print("Found: a step after 30 of 60 runs, noise 1.5 %")
    for step in (0.01, 0.02, 0.03, 0.05, 0.10):
        for shape in ("white", "3 % spikes of +30 %", "AR(1) 0.5", "AR(1) 0.7"):
            _found(runs, shape, step, rng)
    print("Found: a step of 5 %, so many runs after it (30 before), white noise of 1.5 %")
    for after in (3, 5, 6, 8, 10):
        hits = 0
        for _ in range(runs):
            level = np.where(np.arange(30 + after) < 30, 0.0, np.log(1.05))
            series = 0.01 * np.exp(level + noise(30 + after, "white", rng))
            hits += any(abs(one.start - 30) <= 2 for one in changes(series))
        share(f"{after} runs after it", hits, runs)
    print("A machine that is slower for 20 of 60 runs: as measured, corrected by its yardsticks")
    few = runs // 10
    for step in (0.0, 0.10):
        pairs = [on_changing_machine(60, step, rng) for _ in range(few)]
        for name, at in (("measured", 0), ("corrected", 1)):
            rows = [changes(pair[at].tolist()) for pair in pairs]
            near = [any(abs(one.start - 30) <= 2 for one in row) for row in rows]
            what = "the step found" if step else "a change without one"
            share(f"{name}: {what}", sum(near) if step else sum(map(bool, rows)), few)


def _found(runs: int, shape: str, step: float, rng: np.random.Generator) -> None:
    held: Callable[[Change], bool] = lambda one: one.first < 30 <= one.last  # noqa: E731
    rows = simulated(runs, 60, shape, step, rng)
    hits = [next((one for one in row if abs(one.start - 30) <= 3), None) for row in rows]
    known = [one for one in hits if one is not None]
    share(f"{step:.0%}, {shape}", len(known), runs)
    if len(known) > runs / 10:
        share("    the range of runs holds the true place", sum(map(held, known)), len(known))
        sized = [
            one for one in known if one.interval and one.interval.low <= step <= one.interval.high
        ]
        share("    the interval holds the true size", len(sized), len(known))
        width = np.mean([one.last - one.first for one in known])
        print(
            f"    mean range: {width:.1f} runs; extra changes: "
            f"{sum(len(row) > 1 for row in rows)} of {runs} series"
        )


if __name__ == "__main__":
    main()
