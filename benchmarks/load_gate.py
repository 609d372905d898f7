"""Gates on load whose truth is known: false alarms of A/A pairs, and what a slower server shows.

A single server answers Poisson arrivals at 50 and at 80 % of its capacity, or only at one of them;
service times are constant, exponential or lognormal. Sessions differ in speed by 0 or by the 6.6 %
(one standard deviation on the log scale) that is assumed of a host that was never calibrated, and
each run has a schedule of its own. Every pair is gated as two files of `torchgauge load` are.
`python benchmarks/load_gate.py` prints the shares of 10,000 A/A pairs with their Clopper–Pearson
intervals in a quarter of an hour; `--pairs 600` takes a minute. With 20,000 `--requests` p99 has
intervals and is judged too. `--real 40` gates pairs that are sent to a server of this machine (its
service times are exponential, 8 ms), and a quarter as many to one that is twice as slow: in all a
third of an hour.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from torchgauge.analyze.compare.compared_levels import level_pairs
from torchgauge.analyze.gate.load_gate import gate_levels
from torchgauge.analyze.gate.stored import uncalibrated
from torchgauge.gates.gate_options import GateOptions
from torchgauge.records.environment import Environment, Machine, Settings, Software
from torchgauge.records.serving.level import Arrivals, Level
from torchgauge.records.serving.requests import Goal, Requests
from torchgauge.records.serving.serving import ServedBy, Serving
from torchgauge.records.target import TargetDescription

sys.path.insert(0, str(Path(__file__).parents[1]))

Floats = NDArray[np.float64]

SERVICE = 0.01  # seconds on average
REAL_SERVICE, REAL_RATES = 0.008, (30, 60)
SERVICES = ("constant", "exponential", "lognormal")
LOADS = ((0.5, 0.8), (0.5,), (0.8,), (0.9,))
GOALS = (Goal(metric="latency", fraction=0.99, limit=0.5, text="p99<500ms"),)
TOLERANCES = ((), ("latency:10%:60%", "p99:10%:60%"))
TARGET = TargetDescription(
    spec="a.py:make", kind="python", name="A", device="cpu", precision="fp32",
    precision_method="native",
)  # fmt: skip
ENVIRONMENT = Environment(
    created="2026-01-02T03:04:05+00:00",
    machine=Machine(
        system="Linux", architecture="x86_64", cpu="A CPU", physical_cores=2, logical_cores=2,
        usable_cores=2, memory=8_000_000_000,
    ),
    software=Software(torchgauge="0.1.0", python="3.11.7", torch="2.13.0"),
    settings=Settings(threads=2),
)  # fmt: skip


def services(rng: np.random.Generator, kind: str, count: int) -> Floats:
    """Return service times of the mean of `SERVICE`."""
    if kind == "constant":
        return np.full(count, SERVICE)
    if kind == "exponential":
        return rng.exponential(SERVICE, count)
    deviation = 0.5
    return SERVICE * np.exp(rng.normal(-(deviation**2) / 2, deviation, count))


def answered(scheduled: Floats, times: Floats) -> Floats:
    """Return when a single server has answered each request (Lindley's recursion)."""
    done = np.cumsum(times)
    return done + np.maximum.accumulate(scheduled - (done - times))


def simulated(rng: np.random.Generator, kind: str, load: float, slower: float, count: int) -> Level:
    """Return the level of a run of one session."""
    from torchgauge.analyze.serving.levels import level

    rate = load / SERVICE
    scheduled = np.cumsum(rng.exponential(1 / rate, count))
    last = answered(scheduled, slower * services(rng, kind, count))
    due = tuple(scheduled.tolist())
    requests = Requests(
        scheduled=due, sent=due, first=tuple(last.tolist()), last=tuple(last.tolist()),
        fate=("done",) * count, status=(200,) * count, item=(0,) * count,
    )  # fmt: skip
    return level(
        requests,
        scenario="server",
        arrivals=Arrivals(kind="poisson", rate=rate),
        duration=due[-1],
        goals=GOALS,
    )


def record(
    rng: np.random.Generator, kind: str, loads: tuple[float, ...], slower: float, count: int
) -> Serving:
    """Return a run of several levels at one speed of the machine."""
    return Serving(
        target=TARGET,
        environment=ENVIRONMENT,
        served_by=ServedBy(kind="reference"),
        goals=GOALS,
        levels=tuple(simulated(rng, kind, load, slower, count) for load in loads),
    )


def outcomes(
    rng: np.random.Generator, pairs: int, change: float, between: float, count: int
) -> dict[tuple[str, ...], Counter[str]]:
    """Return how often gates of pairs ended how, by service times and loads."""
    cells = list(itertools.product(SERVICES, LOADS))
    counted: dict[tuple[str, ...], Counter[str]] = {}
    for number in range(pairs):
        kind, loads = cells[number % len(cells)]
        speeds = np.exp(rng.normal(0.0, between, 2)) * (1.0, 1 + change)
        baseline, current = (record(rng, kind, loads, speed, count) for speed in speeds)
        pairs_of_levels = level_pairs(baseline, current)
        for tolerances in TOLERANCES:
            options = GateOptions.parsed(tolerances=tolerances)
            verdict = gate_levels(pairs_of_levels, options.tolerances, usual=options.usual)
            name = "default" if not tolerances else "10%:60%"
            key = (name, kind, " and ".join(f"{load:g}" for load in loads))
            counted.setdefault(key, Counter())[verdict.outcome] += 1
            judged = Counter(ruling.outcome for ruling in verdict.rulings if ruling.metric == "p99")
            counted[key].update({f"p99 {outcome}": number for outcome, number in judged.items()})
    return counted


def real_outcomes(first: int, pairs: int, slower: float, seconds: float) -> Counter[str]:
    """Return how gates of two real runs ended, the second at a server that is so much slower."""
    from tests.support.servers.running import running

    import torchgauge as tg

    counted: Counter[str] = Counter()
    for number in range(first, first + pairs):
        records = []
        for session, mean in enumerate((REAL_SERVICE, REAL_SERVICE * slower)):
            seed = 2 * number + session
            with running("fifo_server", service=f"exponential:{mean}", seed=seed) as server:
                records.append(
                    tg.measure_serving(
                        server.address, rate=REAL_RATES, duration=seconds, seed=seed, goals="p99<1s"
                    )
                )
        verdict = tg.gate(*records)
        counted[verdict.outcome] += 1
        late = [level.client for record in records for level in record.levels]
        counted["pairs with a late client"] += any(c is not None and c.limited for c in late)
    return counted


def share(hits: int, total: int) -> str:
    """Return a share with its exact interval."""
    bounds = binomtest(hits, total).proportion_ci(0.95, "exact")
    return f"{100 * hits / total:.2f} % ({100 * bounds.low:.2f} … {100 * bounds.high:.2f})"


def main() -> None:
    """Print the shares of verdicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a real level")
    options = parser.parse_args()
    if options.real:
        for slower, pairs in ((1.0, options.real), (2.0, math.ceil(options.real / 4))):
            counted = real_outcomes(1000 * options.seed, pairs, slower, options.seconds)
            print(f"real, {slower:g} × slower, {pairs} pairs: fail {share(counted['fail'], pairs)}")
            print(f"  {dict(counted)}; load average {os.getloadavg()[0]:.1f}", flush=True)
        return
    rng = np.random.default_rng(options.seed)
    assumed = uncalibrated().between
    cases = (("A/A", 0.0, assumed, options.pairs // 2), ("A/A", 0.0, 0.0, options.pairs // 2))
    slower = options.pairs // 10
    cases += (("1.5 × slower", 0.5, assumed, slower), ("1.2 × slower", 0.2, assumed, slower))
    for title, change, between, pairs in cases:
        counted = outcomes(rng, pairs, change, between, options.requests)
        print(f"\n{title}, sessions differ by {100 * math.expm1(between):.1f} %, {pairs} pairs")
        for name in ("default", "10%:60%"):
            of_tolerance = {key: count for key, count in counted.items() if key[0] == name}
            total = sum(of_tolerance.values(), Counter())
            print(f"  {name}: fail {share(total['fail'], pairs)}", end="; ")
            print(f"pass {100 * total['pass'] / pairs:.1f} %")
            for outcome in ("fail", "pass", "inconclusive"):
                print(f"    p99 {outcome} {total[f'p99 {outcome}']}", end="")
            worst = max(of_tolerance.items(), key=lambda pair: pair[1]["fail"])
            print(f"; most failures: {worst[1]['fail']} of {', '.join(worst[0][1:])}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
