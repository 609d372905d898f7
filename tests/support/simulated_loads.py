"""Levels of load on a queue that is computed instead of run: Lindley's recursion."""

import msgspec
import numpy as np

from torchgauge.analyze.serving.arrivals import schedule
from torchgauge.analyze.serving.goals import parse_goals
from torchgauge.analyze.serving.levels import level as level_of
from torchgauge.records.serving.level import Arrivals
from torchgauge.records.serving.requests import Requests


def lindley(arrived, services):
    """Return when each request of a single first-come server is answered."""
    # finished[i] = max(arrived[i], finished[i − 1]) + service[i], as one cumulated maximum.
    total = np.cumsum(services)
    return total + np.maximum.accumulate(np.asarray(arrived) - (total - services))


class SimulatedLoad:
    """A server with exponential or constant service, of which the capacity is known."""

    def __init__(self, goals: str, mean: float = 0.002, *, kind: str = "constant") -> None:
        self.goals = parse_goals(goals)
        self.mean = mean
        self.kind = kind

    def latencies(self, rate: float, seconds: float, seed: int):
        """Return the schedule and the latencies of a level."""
        times = schedule(Arrivals(kind="poisson", rate=rate, seed=seed), duration=seconds)
        services = np.full(len(times), self.mean)
        if self.kind == "exponential":
            services = np.random.default_rng(seed + 1).exponential(self.mean, len(times))
        return times, lindley(times, services) - times

    def level(self, rate: float, seconds: float, seed: int):
        """Return the level as the record of a run would have it."""
        times, latencies = self.latencies(rate, seconds, seed)
        scheduled, last = tuple(times.tolist()), tuple((times + latencies).tolist())
        count = len(scheduled)
        requests = Requests(
            scheduled=scheduled, sent=scheduled, first=last, last=last,
            fate=("done",) * count, status=(200,) * count, item=(0,) * count,
        )  # fmt: skip
        arrivals = Arrivals(kind="poisson", rate=rate, seed=seed)
        return level_of(
            requests, scenario="server", arrivals=arrivals, duration=seconds, goals=self.goals
        )

    def slower(self, level, seconds: float, *, share: float = 1.0):
        """Return a level whose first share of requests took longer by some seconds."""
        requests = level.requests
        count = round(share * len(requests))
        last = tuple(t + seconds * (i < count) for i, t in enumerate(requests.last))
        changed = msgspec.structs.replace(requests, first=last, last=last)
        return level_of(
            changed, scenario="server", arrivals=level.arrivals, duration=level.duration,
            goals=self.goals,
        )  # fmt: skip
