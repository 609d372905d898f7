"""A made-up world: candidates with true speed-ups, noise on demand, a clock that blocks move."""

import math
import random

from torchgauge.advice.budget import BudgetOver
from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.advice.world import Block
from torchgauge.measure.advice.check import CheckResult, LayerChoice
from torchgauge.records.advice import OutputCheck
from torchgauge.records.target import Facts, TargetDescription

TARGET = TargetDescription(
    spec="m.py:make", kind="module", name="Net", device="cpu", precision="fp32",
    precision_method="native", batch=2,
)  # fmt: skip
STEP = 0.01


def facts(**changes):
    known = {"target": TARGET, "memory": 1000, "step": STEP, "layers": {"Linear": 2}}
    return Facts(**{**known, **changes})


def training_facts(**changes):
    import msgspec

    return facts(target=msgspec.structs.replace(TARGET, training=True), **changes)


def candidate(id, **changes):
    return Candidate(**{"id": id, "title": id, "code": fixed(f"model = {id}(model)"), **changes})


KEPT = OutputCheck(passed=True, bound=1e-3, max_relative=1e-6)


class World:
    """Timings follow `truth`, the speed-up of each candidate; together they multiply.

    `noise` is the standard deviation of d. `checks` and `errors` replace what a check or a block
    of a candidate gives. A block takes `seconds`, or what `slow` says of the candidate in it;
    looking and checks take `look_seconds`, and so does choosing layers, which gives
    `choice`. What runs into the end of `budget` is stopped then. `cpu` are the speed-ups by CPU
    time where they are others, `core_share` the share of time that threads have a core.
    """

    timing = 0.0

    def __init__(
        self, truth, *, noise=0.004, seed=0, checks=(), errors=(), seconds=1.0, look_seconds=0.0,
        slow=(), cpu=(), core_share=1.0, **changes,
    ):  # fmt: skip
        self.cpu = dict(cpu)
        self.core_share = core_share
        self.truth = truth
        self.noise = noise
        self.random = random.Random(seed)
        self.checks = dict(checks)
        self.errors = dict(errors)
        self.seconds = seconds
        self.look_seconds = look_seconds
        self.slow = dict(slow)
        self.choice = LayerChoice((), 0.0)
        self.budget = None
        self.known = facts(**changes)
        self.time = 0.0
        self.asked = []

    def now(self):
        return self.time

    def facts(self):
        self.time += self.look_seconds
        return self.known

    def spend(self, seconds):
        """Let time pass, until the budget stops it."""
        stop = None if self.budget is None else self.budget.until_stop()
        if stop is not None and seconds > stop:
            self.time += stop
            raise BudgetOver
        self.time += seconds

    def check(self, side, tolerance):
        self.asked.append(("check", side.ids, tolerance))
        self.spend(self.look_seconds)
        for one in (side.ids, *side.ids):
            if isinstance(self.checks.get(one), BaseException):
                raise self.checks[one]
            if one in self.checks:
                return self.checks[one]
        return CheckResult(KEPT, memory=1000, one_off=0.5)

    def choose(self, by_layer, tolerance):
        self.asked.append(("choose", by_layer.kinds, tolerance))
        self.spend(self.slow.get("choose", self.look_seconds))
        return self.choice

    def block(self, a, b, *, layers):
        self.asked.append(("block", a.ids, b.ids))
        seconds = max([self.slow.get(one, self.seconds) for one in b.ids], default=self.seconds)
        self.spend(seconds)
        for one in b.ids:
            if one in self.errors:
                raise self.errors[one]
        gain = self._of(b) / self._of(a)
        d = -math.log(gain) + self.random.gauss(0, self.noise)
        before = STEP / self._of(a)
        cpu = -math.log(math.prod(self.cpu.get(name, gain) for name in b.ids))
        cpu += self.random.gauss(0, min(self.noise, 0.01))
        own = {"fc": (0.0, d, d, 0.0)} if layers else {}
        return Block(d, before, before * math.exp(d), own, {"fc": before}, seconds, cpu,
                     self.core_share)  # fmt: skip

    def _of(self, side):
        return math.prod(self.truth.get(name, 1.0) for name in side.ids)

    def blocks(self, a=None, b=None):
        return [one for one in self.asked if one[0] == "block" and (b is None or one[2] == b)
                and (a is None or one[1] == a)]  # fmt: skip
