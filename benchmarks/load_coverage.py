"""How often intervals under load hold the truth: queues whose percentiles are known.

For each queue and utilization it prints how often the 95 % interval of a percentile was shown, how
often a shown one held the truth, how many of all runs were wrong, and how often MLPerf's early
stopping was right in being "99 % sure" that p99 is below its estimate.

    python benchmarks/load_coverage.py --runs 2000 --requests 5000 20000 100000
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.levels import correlated_mean, queries_that_may_exceed
from torchgauge.analyze.statistics.autocorrelation import CorrelatedSamples

UTILIZATIONS = (0.5, 0.7, 0.8, 0.9, 0.95)
FRACTIONS = (0.5, 0.9, 0.95, 0.99)
LOGNORMAL_VARIATION = 2.0
# Of the batching server: requests at once, and seconds of a batch, fixed and per request.
MAX_BATCH, FIXED, PER_REQUEST = 8, 0.5, 0.0625
# p50, p90, p95, p99 and mean, in service times: M/M/1 by theory, the others simulated once with
# 60 million requests each (the batching server with 32 million).
TRUTHS = {
    "M/D/1": (
        (1, 2.515, 3.05, 4.335, 1.5),
        (1.731, 4.08, 5.106, 7.493, 2.169),
        (2.275, 6.008, 7.62, 11.37, 2.999),
        (4.014, 11.77, 15.11, 22.93, 5.499),
        (7.471, 23.18, 29.91, 45.53, 10.45),
    ),
    "lognormal": (
        (1.224, 8.818, 14.05, 31.39, 3.485),
        (2.779, 17.77, 26.56, 52.78, 6.829),
        (5.153, 28.51, 40.93, 75.4, 11.01),
        (13.31, 59.89, 82.22, 139.7, 23.76),
        (30.02, 118.3, 157, 249.3, 48.25),
    ),
    "batches": (
        (1.058, 1.394, 1.487, 1.67, 1.065),
        (1.225, 1.659, 1.798, 2.145, 1.251),
        (1.353, 1.915, 2.14, 2.621, 1.402),
        (1.615, 2.626, 3.042, 4.009, 1.755),
        (2.058, 4.03, 4.869, 6.821, 2.395),
    ),
}

Floats = npt.NDArray[np.float64]


class Tally(NamedTuple):
    """Runs of a cell: how many showed an interval, and how many of these held the truth."""

    shown: int
    held: int

    def text(self, runs: int) -> str:
        """Format coverage, share shown, share of all runs that were wrong."""
        covered = f"{100 * self.held / self.shown:5.1f} %" if self.shown else "      –"
        wrong = 100 * (self.shown - self.held) / runs
        return f"{covered} of {100 * self.shown / runs:3.0f} % ({wrong:3.1f})"


def truths(queue: str, utilization: float) -> tuple[float, ...]:
    """Return p50, p90, p95, p99 and the mean of a queue's sojourn times."""
    if queue == "M/M/1":
        mean = 1 / (1 - utilization)
        return (*(-math.log(1 - fraction) * mean for fraction in FRACTIONS), mean)
    return TRUTHS[queue][UTILIZATIONS.index(utilization)]


def sojourns(queue: str, utilization: float, requests: int, runs: int, seed: int) -> Floats:
    """Return latencies of `runs` runs in steady state, a row each, in service times."""
    random = np.random.default_rng([seed, runs, requests, int(100 * utilization), len(queue)])
    warm_up = int(min(20_000, 40 / (1 - utilization) ** 2 + 1000))
    shape = (runs, requests + warm_up)
    if queue == "batches":
        rate = utilization * MAX_BATCH / (FIXED + PER_REQUEST * MAX_BATCH)
        due = np.cumsum(random.exponential(1 / rate, shape), axis=1)
        return batched(due)[:, warm_up:]
    gaps = random.exponential(1 / utilization, shape)
    if queue == "M/M/1":
        services = random.exponential(1.0, shape)
    elif queue == "M/D/1":
        services = np.ones(shape)
    else:
        sigma = math.sqrt(math.log(1 + LOGNORMAL_VARIATION**2))
        services = random.lognormal(-(sigma**2) / 2, sigma, shape)
    steps = np.cumsum(services[:, :-1] - gaps[:, 1:], axis=1)
    steps = np.concatenate((np.zeros((runs, 1)), steps), axis=1)
    return (steps - np.minimum.accumulate(steps, axis=1) + services)[:, warm_up:]


def batched(due: Floats) -> Floats:
    """Return latencies at a server that takes up to eight waiting requests at once."""
    runs, requests = due.shape
    padded = np.concatenate((due, np.full((runs, MAX_BATCH), np.inf)), axis=1)
    latencies = np.zeros_like(padded)
    following, free = np.zeros(runs, np.int64), np.zeros(runs)
    while (live := np.flatnonzero(following < requests)).size:
        columns = following[live, None] + np.arange(MAX_BATCH)
        candidates = padded[live[:, None], columns]
        begin = np.maximum(free[live], candidates[:, 0])
        taken = candidates <= begin[:, None]
        end = begin + FIXED + PER_REQUEST * taken.sum(axis=1)
        kept = latencies[live[:, None], columns]
        latencies[live[:, None], columns] = np.where(taken, end[:, None] - candidates, kept)
        following[live] += taken.sum(axis=1)
        free[live] = end
    return latencies[:, :requests]


def tallies(rows: Floats, truth: tuple[float, ...]) -> Iterator[Tally]:
    """Yield the tallies of the percentiles, of the mean, and of early stopping's claims."""
    samples = [CorrelatedSamples(row) for row in rows]
    for fraction, value in zip(FRACTIONS, truth, strict=False):
        figures = [sample.percentile(fraction) for sample in samples]
        shown = [(f.low, f.high) for f in figures if f.low is not None and f.high is not None]
        yield Tally(len(shown), sum(low <= value <= high for low, high in shown))
    means = [correlated_mean(sample) for sample in samples]
    ends = [(m.low, m.high) for m in means if m.low is not None and m.high is not None]
    yield Tally(len(ends), sum(low <= truth[-1] <= high for low, high in ends))
    allowed = queries_that_may_exceed(0.99, rows.shape[1])
    if allowed:
        claims = [sample.ascending[-allowed] for sample in samples]
        yield Tally(len(claims), int(sum(truth[3] <= claim for claim in claims)))
    else:
        yield Tally(0, 0)


def main() -> None:
    """Print a row for each queue, utilization and number of requests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--requests", type=int, nargs="+", default=[5000, 20_000, 100_000])
    parser.add_argument("--queues", nargs="+", default=["M/M/1", "M/D/1", "lognormal", "batches"])
    arguments = parser.parse_args()
    names = ("p50", "p90", "p95", "p99", "mean", "early stopping")
    print("coverage of shown intervals, of how many runs (share of all runs that were wrong)")
    print("queue       load  requests  " + "  ".join(f"{name:>22}" for name in names))
    for requests in arguments.requests:
        chunk = max(1, 4_000_000 // requests)
        for queue in arguments.queues:
            for utilization in UTILIZATIONS:
                truth = truths(queue, utilization)
                sums = np.zeros((len(names), 2), np.int64)
                for begin in range(0, arguments.runs, chunk):
                    size = min(chunk, arguments.runs - begin)
                    rows = sojourns(queue, utilization, requests, size, begin)
                    sums += np.array(list(tallies(rows, truth)))
                cells = [f"{Tally(*map(int, pair)).text(arguments.runs):>22}" for pair in sums]
                print(f"{queue:10}  {utilization:4}  {requests:8}  " + "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
