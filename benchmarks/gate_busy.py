"""Gates drawn from recorded blocks of busy machines: false alarms and power, by load.

`python benchmarks/gate_busy.py FILE` draws gates of consecutive blocks of one model from recordings
of one build (`busy_recordings.py`; FILE is busy_blocks.json.gz beside this one), gives A and B to
the processes of a block at random, makes B so much slower, and prints how many gates failed,
passed, stayed inconclusive, or ended so after three blocks. Beside our rule stands Student's t at
97.5 % on the blocks' differences of typical calls, the rule of old. Layers count as a false alarm
where a gate of alike builds would call one changed. Where a gate takes more blocks than were
recorded some come twice, with another assignment.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.stats import false_discovery_control, t

from torchgauge.analyze.gate.paired_layers import FALSE_DISCOVERIES
from torchgauge.analyze.gate.tolerances import default_tolerance
from torchgauge.analyze.statistics.paired import (
    ESTIMATING_BLOCKS,
    BlockTest,
    Paired,
    decide,
    hopeless,
)
from torchgauge.records.metric import METRICS

FILE = Path(__file__).with_name("busy_blocks.json.gz")
OUTCOMES = ("fail", "pass", "inconclusive", "early")


def ours(logs, blocks):
    """Return how a gate of so many blocks at first ends by our rule, and the blocks it took."""

    def pair(used):
        four = tuple(map(tuple, logs[:used]))
        return Paired(METRICS["latency"], "s", four, default_tolerance("latency"))

    if hopeless([pair(ESTIMATING_BLOCKS)], len(logs)):
        return "early", ESTIMATING_BLOCKS
    for used in (blocks, len(logs)):
        if (decision := decide([pair(used)])[0]) != "undecided":
            return decision, used
    return "inconclusive", len(logs)


def student(logs, blocks):
    """Return the same by Student's t on differences."""
    for used in (blocks, len(logs)):
        d = np.asarray(logs[:used]) @ np.array([-0.5, 0.5, 0.5, -0.5])
        reach = t.ppf(0.975, used - 1) * d.std(ddof=1) / math.sqrt(used)
        if d.mean() - reach > math.log(1.01):
            return "fail", used
        if d.mean() + reach < math.log(1.03):
            return "pass", used
    return "inconclusive", len(logs)


def drawn(recorded, count, rng):
    """Return indices of consecutive blocks, and for each the processes in the order A, B, B, A."""
    first = rng.integers(len(recorded))
    chosen = [(first + number) % len(recorded) for number in range(count)]
    return chosen, [rng.permutation(4) for _ in chosen]


def changed_layers(recorded, chosen, orders):
    """Return whether a gate of alike builds would call a layer changed."""
    layers = [
        np.array(recorded[n]["layers"])[order] for n, order in zip(chosen, orders, strict=True)
    ]
    by_layer = np.stack(layers, axis=-1)  # process, layer, block
    tests = [BlockTest([tuple(four) for four in by_layer[:, n].T]) for n in range(len(by_layer[0]))]
    return bool((false_discovery_control([test.p for test in tests]) <= FALSE_DISCOVERIES).any())


def show(recorded, blocks, changes, gates):
    """Print how gates of one model ended."""
    for statistic, rule in (("typical", student), ("typical", ours), ("undisturbed", ours)):
        cells = []
        for change in changes:
            rng, ends, used, layers = np.random.default_rng(1), Counter(), 0, 0
            for _ in range(gates):
                chosen, orders = drawn(recorded, 2 * blocks, rng)
                logs = np.array(
                    [
                        np.array(recorded[n][statistic])[o]
                        for n, o in zip(chosen, orders, strict=True)
                    ]
                )
                logs[:, 1:3] += math.log1p(change)
                outcome, count = rule(logs, blocks)
                ends[outcome] += 1
                used += count
                if change == 0 and statistic == "undisturbed":
                    layers += outcome == "fail" or changed_layers(
                        recorded, chosen[:count], orders[:count]
                    )
            cells.append(
                f"+{100 * change:g} %: "
                + " / ".join(f"{100 * ends[outcome] / gates:.1f}" for outcome in OUTCOMES)
                + f", {used / gates:.1f} blocks"
                + (f", any alarm {100 * layers / gates:.1f}" if layers else "")
            )
        print(
            f"    {blocks:2} blocks, {statistic:11} {rule.__name__:8}", "; ".join(cells), flush=True
        )


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--gates", type=int, default=1_000)
    parser.add_argument("--blocks", type=int, nargs="+", default=[3, 4, 8])
    parser.add_argument("--changes", type=float, nargs="+", default=[0, 5, 10], help="percent")
    given = parser.parse_args()
    recordings = json.loads(gzip.decompress(given.file.read_bytes()))
    print("of gates: fail / pass / inconclusive / inconclusive after three blocks, in percent")
    for name, recorded in recordings["blocks"].items():
        running = np.mean([block["running"] for block in recorded])
        print(f"  {name}: {len(recorded)} blocks, {running:.1f} others running")
        for blocks in given.blocks:
            show(recorded, blocks, [change / 100 for change in given.changes], given.gates)


if __name__ == "__main__":
    main()
