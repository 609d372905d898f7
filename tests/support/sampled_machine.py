"""A call whose durations the test says, and the clock that they move."""

import numpy as np

from torchgauge.measure.latency.latency_options import SamplingPlan
from torchgauge.measure.latency.sampling import Timing, sample

MS = 1_000_000


class FakeClock:
    def __init__(self):
        self.time = 5 * MS

    def now(self):
        return self.time


class Machine:
    """A call takes the next of `durations` (ns); `clock` moves by it and by nothing else."""

    def __init__(self, durations, interrupt_at=None, stages=False):
        self.clock = FakeClock()
        self.durations = iter(durations)
        self.interrupt_at = interrupt_at
        self.stages = stages
        self.calls = 0
        self.inside = False

    def __call__(self):
        self.calls += 1
        if self.calls == self.interrupt_at:
            raise KeyboardInterrupt
        self.inside = True
        total = next(self.durations)
        self.clock.time += total
        self.inside = False
        if self.stages:
            parts = {"preprocess": total // 4, "model": total - total // 4}
            return Timing(total, device=total / 2e9, stages=parts)
        return Timing(total)

    def sample(self, plan=None, **options):
        return sample(self, self.clock, plan or SamplingPlan(), **options)


def steady(duration=10 * MS, spread=0.0, first=40 * MS, seed=0):
    """Yield a slow first call and then equal or noisy ones without end."""
    yield first
    rng = np.random.default_rng(seed)
    while True:
        yield round(duration * np.exp(spread * rng.normal()))
