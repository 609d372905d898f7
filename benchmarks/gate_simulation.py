"""Gates on simulated hosts whose truth is known: false alarms, power, and what peers' rules do.

Each host has noise between processes (1 %), calls that are correlated with the ones before, a drift
(a random walk, and 3 % over the gate), and bursts of other load (+10 % over one visit in twenty).
`python benchmarks/gate_simulation.py` prints the shares of 10,000 gates with their Clopper–Pearson
intervals in some minutes; `--gates 500` takes a moment.

On the same data: pytest-benchmark's `--benchmark-compare-fail=mean:5%` and a point threshold of
7 % on medians, both on one process of each build side by side, as their users run them; and
Mann–Whitney on all calls pooled (one-sided, 5 %).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.stats import binomtest, mannwhitneyu

from torchgauge.analyze.gate.tolerances import default_tolerance
from torchgauge.analyze.statistics.paired import (
    ESTIMATING_BLOCKS,
    Paired,
    blocks_for,
    decide,
    hopeless,
)
from torchgauge.records.metric import METRICS

Floats = NDArray[np.float64]

TOLERANCE = default_tolerance("latency")
ROUNDS, PROCESSES, CALLS = 4, 4, 12
IS_B = np.array([0.0, 1.0, 1.0, 0.0])
AT_ONCE = 50
PEERS = ("mean:5 %", "median 7 %", "Mann–Whitney")


@dataclass(frozen=True)
class Host:
    """Standard deviations on the log scale: of processes, of calls, of a step of the drift."""

    processes: float = 0.01
    calls: float = 0.02
    correlation: float = 0.8
    walk: float = 0.0005
    slope: float = 0.03
    bursts: float = 0.05

    def times(self, rng: np.random.Generator, gates: int, blocks: int, change: float) -> Floats:
        """Return log times of calls by gate, block, round, process and call."""
        shape = (gates, blocks, ROUNDS, PROCESSES, CALLS)
        calls = blocks * ROUNDS * PROCESSES * CALLS
        innovation = rng.standard_normal((gates, calls)) * math.sqrt(1 - self.correlation**2)
        innovation[:, 0] /= math.sqrt(1 - self.correlation**2)
        found = self.calls * lfilter([1.0], [1.0, -self.correlation], innovation, axis=1)
        found += self.slope * np.linspace(0, 1, calls)
        found = found.reshape(shape)
        visits = rng.standard_normal((gates, blocks * ROUNDS * PROCESSES)) * self.walk
        found += visits.cumsum(axis=1).reshape(*shape[:4], 1)
        found += 0.1 * (rng.random((*shape[:4], 1)) < self.bursts)
        found += self.processes * rng.standard_normal((gates, blocks, 1, PROCESSES, 1))
        return found + math.log1p(change) * IS_B[:, None]


def logs_of(times: Floats) -> Floats:
    """Return log times by gate, block and process, from visits' medians."""
    return np.asarray(np.median(times, axis=-1).mean(axis=-2))


def decided(logs: Floats, blocks: int) -> tuple[str, int]:
    """Return a gate's outcome by our rule, and the blocks that it took."""

    def pair(used: int) -> Paired:
        return Paired(METRICS["latency"], "s", tuple(map(tuple, logs[:used])), TOLERANCE)

    if hopeless([pair(ESTIMATING_BLOCKS)], 2 * blocks):
        return "inconclusive", ESTIMATING_BLOCKS
    for used in (blocks, 2 * blocks):
        if (found := decide([pair(used)])[0]) != "undecided":
            return found, used
    return "inconclusive", used


def peers(times: Floats) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Return which gates fail under other rules, from the first blocks' times."""
    a, b = (np.exp(times[:, 0, :, n, :]).reshape(len(times), -1) for n in (0, 1))
    yield PEERS[0], b.mean(axis=1) > 1.05 * a.mean(axis=1)
    yield PEERS[1], np.median(b, axis=1) > 1.07 * np.median(a, axis=1)
    both = [times[:, :, :, side == IS_B, :].reshape(len(times), -1) for side in (0, 1)]
    yield PEERS[2], mannwhitneyu(both[1], both[0], axis=1, alternative="greater").pvalue < 0.05


def simulate(host: Host, change: float, gates: int, blocks: int, seed: int) -> Counter[str]:
    """Return how many gates ended how; "blocks" counts blocks."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    for first in range(0, gates, AT_ONCE):
        times = host.times(rng, min(AT_ONCE, gates - first), 2 * blocks, change)
        for logs in logs_of(times):
            outcome, used = decided(logs, blocks)
            found[outcome] += 1
            found["blocks"] += used
        for name, fails in peers(times[:, :blocks]):
            found[name] += int(fails.sum())
    return found


def share(count: int, of: int) -> str:
    """Return a share with its 95 % Clopper–Pearson interval."""
    ends = binomtest(count, of).proportion_ci(method="exact")
    return f"{count / of:7.2%} [{ends.low:.2%}, {ends.high:.2%}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=int, default=10_000)
    parser.add_argument("--changes", type=float, nargs="+", default=[0, 1, 2, 3, 5, 10])
    parser.add_argument("--processes", type=float, nargs="+", default=[1.0])
    parser.add_argument("--blocks", type=int, help="as without a calibration (default: planned)")
    options = parser.parse_args()
    for noise in options.processes:
        host = Host(processes=noise / 100)
        quiet = logs_of(host.times(np.random.default_rng(0), 200, 8, 0.0))
        s_d = float((quiet @ (IS_B - 0.5)).std())
        blocks = options.blocks or max(8, blocks_for(s_d, TOLERANCE))
        print(f"\nprocess noise {noise:g} %, s_d {s_d:.2%}, {blocks} blocks, {options.gates} gates")
        for change in options.changes:
            found = simulate(host, change / 100, options.gates, blocks, seed=int(change * 10))
            print(
                f"  change +{change:g} %, {found['blocks'] / options.gates:.1f} blocks on average"
            )
            for name in ("fail", "pass", "inconclusive"):
                print(f"    {name:14} {share(found[name], options.gates)}")
            for name in PEERS:
                print(f"    {name:14} {share(found[name], options.gates)} fail")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
