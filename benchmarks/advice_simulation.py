"""How often advice accepts what gains nothing, and what gains a little, on simulated timings.

Each trial is a whole experiment: screening, fresh confirmation, Holm. Noise differs between
processes, has heavy tails and bursts; a machine drifts. Prints rates with exact 95 % intervals.

    python benchmarks/advice_simulation.py [--trials 2000]
"""

from __future__ import annotations

import argparse
import math
import random

from scipy.stats import beta

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.advice.experiment import Experiment
from torchgauge.advice.world import Block, Side
from torchgauge.measure.advice.check import CheckResult
from torchgauge.progress import Silent
from torchgauge.records.advice import OutputCheck
from torchgauge.records.target import Facts, TargetDescription

TARGET = TargetDescription(
    spec="", kind="module", name="", device="cpu", precision="fp32", precision_method="native"
)
STEP = 0.01
# The deviation of a process's median, in logs: a quiet machine, a usual one, a busy one.
NOISES = (0.002, 0.01, 0.04)


class Simulated:
    """Four processes per block: each with its own speed, heavy tails, bursts, and a drift."""

    def __init__(self, truth: dict[str, float], noise: float, seed: int) -> None:
        self.truth = truth
        self.noise = noise
        self.random = random.Random(seed)
        self.drift = 0.0

    def facts(self) -> Facts:
        """Return a model of which nothing matters."""
        return Facts(target=TARGET, memory=1000, step=STEP)

    def check(self, _side: Side, tolerance: float) -> CheckResult:
        """Keep every output."""
        return CheckResult(OutputCheck(passed=True, bound=tolerance), memory=1000, one_off=0.0)

    def block(self, a: Side, b: Side, *, layers: bool) -> Block:
        """Return d of processes A, B, B, A."""
        del layers
        gain = math.log(self._of(b) / self._of(a))
        logs = [self._process() - side * gain for side in (0, 1, 1, 0)]
        d = (logs[1] + logs[2] - logs[0] - logs[3]) / 2
        return Block(d, STEP, STEP * math.exp(d), duration=1.0)

    def _of(self, side: Side) -> float:
        return math.prod(self.truth.get(one, 1.0) for one in side.ids)

    def _process(self) -> float:
        self.drift += self.random.gauss(0, self.noise / 4)
        # Student's t with four degrees of freedom.
        tail = self.random.gauss(0, 1) / math.sqrt(self.random.gammavariate(2, 0.5))
        burst = self.random.expovariate(1 / (3 * self.noise)) if self.random.random() < 0.1 else 0
        return self.drift + self.noise * tail + burst


def accepted(truth: dict[str, float], noise: float, seed: int) -> list[str]:
    """Return the ids that one experiment accepts."""
    candidates = [Candidate(id=name, title=name, code=fixed("pass"), group="g") for name in truth]
    found = Experiment(Simulated(truth, noise, seed), candidates, Silent()).run()
    return [one.id for one in found.trials if one.outcome == "accepted"]


def rate(hits: int, of: int) -> str:
    """Return a share with its exact 95 % interval."""
    low = beta.ppf(0.025, hits, of - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, of - hits) if hits < of else 1.0
    return f"{hits}/{of} = {100 * hits / of:.2f} % [{100 * low:.2f}, {100 * high:.2f}]"


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args().trials
    for noise in NOISES:
        print(f"noise of a process {100 * noise:g} %")
        one = sum(bool(accepted({"same": 1.0}, noise, seed)) for seed in range(trials))
        print(f"  one candidate that gains nothing: {rate(one, trials)}")
        of = max(trials // 10, 1)
        names = [f"same{number}" for number in range(10)]
        found = [accepted(dict.fromkeys(names, 1.0), noise, seed) for seed in range(of)]
        print(f"  ten of them, candidates accepted: {rate(sum(map(len, found)), 10 * of)}")
        print(f"  ten of them, any accepted: {rate(sum(map(bool, found)), of)}")
        for gain in (1.01, 1.03, 1.1, 1.3):
            hits = sum(bool(accepted({"gain": gain}, noise, seed)) for seed in range(of))
            print(f"  one that is {gain:g} times as fast: {rate(hits, of)}")


if __name__ == "__main__":
    main()
