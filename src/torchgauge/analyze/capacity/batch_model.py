"""A server that computes batches, by the measured seconds of batches of each size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from torchgauge.analyze.capacity.server_model import Outcome
from torchgauge.analyze.capacity.simulation import Floats, Workers, drawn, highest_rate, simulate
from torchgauge.analyze.statistics.autocorrelation import autocorrelation_time, cautious
from torchgauge.records.serving.service_times import ServiceTimes

# A size of which fewer were measured has its mean from its neighbours, its scatter from all.
ENOUGH = 20
# Fewer batches in all do not show how certain their mean is.
ENOUGH_IN_ALL = 8
# One worker without batches is simulated so many times as fast; a batch takes as long as a request,
# so that of a larger one this share more requests are.
ONE_BY_ONE, PER_LARGER = 5.0, 0.25


class BatchModel:
    """Service times by batch, and the simulation of workers that have them.

    The seconds of a size that was measured often are drawn from the measured ones. The mean of
    another lies on the line between the nearest that were, and its scatter is that of all sizes,
    relative to their means. No size above the largest that was measured is known.

    Args:
        seconds: By batch size, in the order in which they ran.
        overhead: Seconds of a request outside of the batch, in which no worker is busy.
    """

    def __init__(self, seconds: Mapping[int, Floats], overhead: float = 0.0) -> None:
        self.seconds = dict(sorted(seconds.items()))
        self.overhead = overhead
        self.tables = _tables(self.seconds)
        self.means = [float(table.mean()) for table in self.tables]

    @classmethod
    def from_times(cls, times: ServiceTimes) -> BatchModel:
        """Return the model of a record's service times."""
        seconds = {part.batch: np.array(part.seconds) for part in times.batches if part.seconds}
        return cls(seconds, times.overhead)

    @property
    def uncertain(self) -> bool:
        """Whether enough batches were measured to say how certain their times are."""
        return sum(map(len, self.seconds.values())) >= ENOUGH_IN_ALL

    @property
    def largest_batch(self) -> int:
        """The largest batch that was measured."""
        return len(self.tables)

    def run(self, arrivals: Floats, workers: Workers, seed: int) -> Outcome:
        """Simulate requests that arrive at these seconds, in batches of measured sizes."""
        workers = replace(workers, max_batch=min(workers.max_batch, self.largest_batch))
        services = [
            drawn(table, np.random.default_rng((seed, size)))
            for size, table in enumerate(self.tables, start=1)
        ]
        served = simulate(arrivals, services, workers)
        return Outcome(served.ends - arrivals + self.overhead, served.busy, served.batches)

    def effort(self, workers: Workers) -> float:
        """Return how many requests can be simulated in the time of one of a batch."""
        if workers.count == workers.max_batch == 1:
            return ONE_BY_ONE
        return 1 + PER_LARGER * (workers.max_batch - 1)

    def highest_rate(self, workers: Workers) -> float:
        """Return the requests per second from which on the queue grows without end."""
        return highest_rate(self.means, workers)

    def resampled(self, generator: np.random.Generator) -> BatchModel:
        """Return the model of as many batches, drawn from the measured ones in blocks.

        Blocks are as long as batches in a row resemble each other.
        """
        seconds = {
            size: _in_blocks(values, generator) if len(values) > 1 else values
            for size, values in self.seconds.items()
        }
        return BatchModel(seconds, self.overhead)


def _in_blocks(values: Floats, generator: np.random.Generator) -> Floats:
    """Return as many values, in blocks that begin anywhere; the series is taken as a circle."""
    count = len(values)
    # A line that rises has no end of resemblance; eight blocks at least still say how it varies.
    length = math.ceil(min(cautious(autocorrelation_time(values), count), count / 8))
    begins = generator.integers(count, size=-(-count // max(1, length)))
    picks = (begins[:, None] + np.arange(max(1, length))).ravel()[:count] % count
    drawn_values: Floats = values[picks]
    return drawn_values


def _tables(seconds: Mapping[int, Floats]) -> list[Floats]:
    """Return sorted seconds to draw from, of every size up to the largest."""
    sizes = np.array(list(seconds))
    means = {size: float(values.mean()) for size, values in seconds.items()}
    sure = [
        size for size in seconds if len(seconds[size]) >= ENOUGH or size in (sizes[0], sizes[-1])
    ]
    scatter = np.concatenate([
        values / means[size] if means[size] > 0 else np.ones(len(values))
        for size, values in seconds.items()
    ])  # fmt: skip
    tables = []
    for size in range(1, int(sizes[-1]) + 1):
        if size in seconds and len(seconds[size]) >= ENOUGH:
            tables.append(np.sort(seconds[size]))
        else:
            mean = np.interp(size, sure, [means[anchor] for anchor in sure])
            tables.append(np.sort(scatter * mean))
    return tables
