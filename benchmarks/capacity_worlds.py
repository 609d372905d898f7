"""How far plans of capacity lie from worlds that are known in full, near their highest rate.

A server's batches take 4 ms and 2 ms a request, and vary by a coefficient of variation. A plan
knows so many measured batches of each size; the truth is of long runs with service times of their
own. For each setting it prints the root mean square of the error of p50 and p99 on the log scale,
the median half-width of their intervals, and how many intervals held the truth.

    python benchmarks/capacity_worlds.py --seeds 6 --variations 0.1 0.3 --batches 1000 4000
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.prediction import Predictor
from torchgauge.analyze.capacity.simulation import Workers, simulate

Floats = npt.NDArray[np.float64]

FIXED, PER_REQUEST = 4e-3, 2e-3
SETTINGS = (Workers(1), Workers(1, 8, 5e-3), Workers(2, 4, 2e-3), Workers(3, 2, 0.0))
FRACTIONS = (0.5, 0.99)
TRUE_RUNS, TRUE_REQUESTS, DRAWN = 4, 2_000_000, 100_000


def batch_seconds(size: int, variation: float, count: int, random: np.random.Generator) -> Floats:
    """Return seconds of so many batches of a size."""
    sigma = math.sqrt(math.log(1 + variation**2))
    return (FIXED + PER_REQUEST * size) * random.lognormal(-(sigma**2) / 2, sigma, count)


def endless(size: int, variation: float, random: np.random.Generator) -> Iterator[float]:
    """Yield seconds of batches without end."""
    while True:
        yield from batch_seconds(size, variation, DRAWN, random).tolist()


def truth(workers: Workers, load: float, variation: float) -> tuple[Floats, Floats]:
    """Return p50 and p99 of long runs, and their relative standard errors."""
    highest = workers.count * workers.max_batch / (FIXED + PER_REQUEST * workers.max_batch)
    runs = []
    for seed in range(TRUE_RUNS):
        random = np.random.default_rng((seed, 77))
        due = np.cumsum(random.exponential(1 / (load * highest), TRUE_REQUESTS))
        services = [
            endless(size, variation, np.random.default_rng((seed, size)))
            for size in range(1, workers.max_batch + 1)
        ]
        latency = simulate(due, services, workers).ends - due
        runs.append(np.quantile(latency[TRUE_REQUESTS // 20 :], FRACTIONS))
    values = np.array(runs)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / values.mean(axis=0) / TRUE_RUNS**0.5


def row(workers: Workers, load: float, variation: float, batches: int, seeds: int) -> str:
    """Format how plans from several measurements compare with the truth."""
    true, errors = truth(workers, load, variation)
    highest = workers.count * workers.max_batch / (FIXED + PER_REQUEST * workers.max_batch)
    cells = []
    logs: list[list[float]] = [[], []]
    widths: list[list[float]] = [[], []]
    held = [0, 0]
    for seed in range(seeds):
        random = np.random.default_rng((seed, 5))
        sizes = range(1, workers.max_batch + 1)
        model = BatchModel({s: batch_seconds(s, variation, batches, random) for s in sizes})
        made = Predictor(model, CapacityOptions(rate=1.0, seed=seed)).predict(
            workers, load * highest
        )
        for index, fraction in enumerate(FRACTIONS):
            figure = made and made.distributions["latency"].percentile(fraction)
            if figure is None or figure.interval is None:
                continue
            low, high = figure.interval.low, figure.interval.high
            logs[index].append(math.log(figure.value / true[index]))
            widths[index].append(math.log(high / low) / 2)
            held[index] += low <= true[index] <= high
    for index, fraction in enumerate(FRACTIONS):
        shown = len(logs[index])
        rms = 100 * float(np.sqrt(np.mean(np.square(logs[index])))) if shown else math.nan
        width = 100 * float(np.median(widths[index])) if shown else math.nan
        cells.append(
            f"p{100 * fraction:g} {rms:5.1f} %, half-width {width:3.0f} %,"
            f" {held[index]} of {shown} held (truth ± {100 * errors[index]:.1f} %)"
        )
    name = f"{workers.count} × {workers.max_batch}"
    return f"{name:7} cv {variation:<4} load {load:<5} {batches:6} batches  " + "  ".join(cells)


def main() -> None:
    """Print a row for each setting."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--variations", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--loads", type=float, nargs="+", default=[0.7, 0.9, 0.95])
    parser.add_argument("--batches", type=int, nargs="+", default=[1000, 4000])
    arguments = parser.parse_args()
    for workers in SETTINGS:
        for variation in arguments.variations:
            for load in arguments.loads:
                for batches in arguments.batches:
                    print(row(workers, load, variation, batches, arguments.seeds), flush=True)


if __name__ == "__main__":
    main()
