"""How often levels are rightly called saturated, and goals met or missed: known queues.

First: of levels that begin idle, the share that is called saturated, below and above what the
server answers at most. Then: of levels whose limit is exactly the true percentile, the share in
which the goal was called met, and missed (2.5 % each is what a 95 % interval allows); and with a
limit of twice that, the share called met.

    python benchmarks/load_verdicts.py --levels 1000
"""

from __future__ import annotations

import argparse

import numpy as np

from load_coverage import FRACTIONS, sojourns, truths
from load_search import QUEUES, Case
from torchgauge.analyze.serving.goals import judged
from torchgauge.analyze.statistics.autocorrelation import CorrelatedSamples
from torchgauge.records.record import Interval
from torchgauge.records.serving.level import Arrivals, Level
from torchgauge.records.serving.requests import Distribution, Estimate, Goal, Percentile

LOADS = (0.5, 0.7, 0.9, 1.5, 2.0, 4.0)


def saturated(queue: str, load: float, requests: int, levels: int) -> float:
    """Return the share of levels that are called saturated."""
    case = Case(queue, 0.5, "p95", 1.0)
    rate = load * case.most
    flags = [case.level(rate, requests / rate, seed).saturation for seed in range(levels)]
    return sum(flag is not None and flag.saturated is True for flag in flags) / levels


def verdict(
    row: np.ndarray[tuple[int], np.dtype[np.float64]], fraction: float, limit: float
) -> str:
    """Return how a goal is judged by the latencies of a level."""
    samples = CorrelatedSamples(row)
    figure = samples.percentile(fraction)
    interval = None
    if figure.low is not None and figure.high is not None:
        interval = Interval(low=figure.low, high=figure.high, scope="process")
    percentile = Percentile(fraction=fraction, value=figure.value, interval=interval)
    latency = Distribution(
        count=row.size, mean=Estimate(value=1.0), low=0.0, high=1e9, percentiles=(percentile,)
    )
    level = Level(arrivals=Arrivals(kind="poisson"), duration=1, window=(0, 1), latency=latency)
    _, low, high = samples.share_above(limit)
    goal = Goal(metric="latency", limit=limit, fraction=fraction)
    return judged(goal, level, Interval(low=low, high=high, scope="process")).verdict


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--levels", type=int, default=500)
    parser.add_argument("--requests", type=int, nargs="+", default=[31, 60, 100, 400])
    parser.add_argument("--judged", type=int, nargs="+", default=[300, 1600, 6000])
    arguments = parser.parse_args()
    print("called saturated, in %  " + "".join(f"{load:>8}" for load in LOADS))
    for queue in QUEUES:
        for requests in arguments.requests:
            shares = [saturated(queue, load, requests, arguments.levels) for load in LOADS]
            cells = "".join(f"{100 * share:8.1f}" for share in shares)
            print(f"{queue:10} {requests:12}  {cells}", flush=True)
    print("in %: limit at the truth: met, missed; at twice that: met")
    for queue in QUEUES:
        for utilization in (0.5, 0.8, 0.9):
            for requests in arguments.judged:
                rows = sojourns(queue, utilization, requests, arguments.levels, 1)
                cells = []
                for index in (2, 3):
                    truth = truths(queue, utilization)[index]
                    at = [verdict(row, FRACTIONS[index], truth) for row in rows]
                    far = [verdict(row, FRACTIONS[index], 2 * truth) for row in rows]
                    counts = (at.count("met"), at.count("missed"), far.count("met"))
                    cells.append(" ".join(f"{100 * n / len(rows):5.1f}" for n in counts))
                text = f"  p95 {cells[0]}  p99 {cells[1]}"
                print(f"{queue:10} {utilization:4} {requests:7}{text}", flush=True)


if __name__ == "__main__":
    main()
