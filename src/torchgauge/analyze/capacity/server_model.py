"""What a plan needs of a model of a server: any discipline that can be simulated has it."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from torchgauge.analyze.capacity.simulation import Floats, Workers
from torchgauge.records.record import Interval

# How far simulation and server differ beside the service times (how a batch fills while the server
# wakes, and the like): of 40 levels of servers whose batches took given times 95 % were within
# this share (benchmarks/capacity_real.py --paced).
MODEL_ERROR = 0.04


class Outcome(NamedTuple):
    """What simulated requests waited, in the order of their schedule.

    Attributes:
        latency: Seconds from arrival to answer.
        busy: Seconds that the workers computed, in all.
        batches: How many batches they computed.
        ttft: Seconds from arrival to the first token, of a language model.
        tpot: Seconds per token after the first; none of requests for a single token.
    """

    latency: Floats
    busy: float
    batches: float
    ttft: Floats | None = None
    tpot: Floats | None = None

    def times(self, metric: str) -> Floats | None:
        """Return the seconds by the name of a goal's metric; None where it has none."""
        named = {"latency": self.latency, "service": self.latency}
        return {**named, "ttft": self.ttft, "tpot": self.tpot}.get(metric)


class ServerModel(Protocol):
    """A server whose service times are known."""

    @property
    def uncertain(self) -> bool:
        """Whether `resampled` differs: enough was measured to say how certain it is."""

    def effort(self, workers: Workers) -> float:
        """Return how many requests can be simulated in the time of one of a batch."""

    @property
    def largest_batch(self) -> int:
        """The largest batch whose time is known."""

    def run(self, arrivals: Floats, workers: Workers, seed: int) -> Outcome:
        """Simulate requests that arrive at these seconds; one seed draws alike times."""

    def highest_rate(self, workers: Workers) -> float:
        """Return the requests per second from which on the queue grows without end."""

    def resampled(self, generator: np.random.Generator) -> ServerModel:
        """Return the server as another measurement of the same length might have shown it."""


def with_model_error(value: float, low: float, high: float) -> Interval:
    """Return the interval of a simulated figure between these ends, with what the model errs."""
    below, above = (
        math.hypot(math.log(end / value), math.log1p(MODEL_ERROR)) if value > 0 < end else 0.0
        for end in (min(low, value), max(high, value))
    )
    return Interval(low=value * math.exp(-below), high=value * math.exp(above))
