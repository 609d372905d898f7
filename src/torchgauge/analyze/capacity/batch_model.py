"""A server that computes batches, by the measured seconds of batches of each size."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.capacity.server_model import Outcome
from torchgauge.analyze.capacity.simulation import (
    CHUNK,
    Floats,
    Workers,
    at_random,
    drawn,
    highest_rate,
    simulate_queues,
)
from torchgauge.analyze.statistics.autocorrelation import autocorrelation_time, cautious
from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import LARGEST_BATCH, Queues, ServiceTimes

Indices = npt.NDArray[np.int64]

# A size of which fewer were measured has its mean from its neighbours, its scatter from all.
ENOUGH = 20
# Fewer batches in all do not show how certain their mean is.
ENOUGH_IN_ALL = 8
# Batches that are replayed in a row, in times over which they resemble each other: most of a slow
# period stays in one piece.
REPLAYED = 3.0
# At least so many such stretches are told apart, however long a slow period seems.
STRETCHES = 8
# How far another run lies from the mean of as many parts, in times of their scatter.
DRIFT_SCALE = math.sqrt(1 + 1 / STRETCHES)
# One worker without batches is simulated so many times as fast; a batch takes as long as a request,
# so that of a larger one this share more requests are.
ONE_BY_ONE, PER_LARGER = 5.0, 0.25


class BatchModel:
    """Service times by batch, and the simulation of workers that have them.

    The seconds of a size that was measured often are drawn from the measured ones. The mean of
    another lies on the line between the nearest that were, and its scatter is that of all sizes,
    relative to their means. No size above the largest that was measured is known.

    A machine is slow for a while: a queue that meets several slow batches in a row grows longer
    than by chance. Where batches in a row resemble each other, what is drawn are stretches of the
    measured ones, by how slow each was among those of its size.

    Args:
        seconds: By batch size, in the order in which they ran.
        overhead: Seconds of a request outside of the batch, in which no worker is busy.
        order: The sizes of all batches in the order in which they ran; without it size after size.
        stretch: Batches in a row that resemble each other; without it, as measured.
        drift: By how much the speed differs between parts of the measurement, as a relative
            standard deviation; without it, as measured.
        queues: From which queues workers take. Unknown ones are "bound", and in half of the
            resamples "one".
    """

    def __init__(
        self,
        seconds: Mapping[int, Floats],
        overhead: float = 0.0,
        order: Sequence[int] = (),
        stretch: int = 0,
        drift: float | None = None,
        queues: Queues = "one",
    ) -> None:
        self.queues = queues
        self.seconds = dict(sorted(seconds.items()))
        self.overhead = overhead
        self.order = np.array(order, dtype=np.int64)
        self.means = _means(self.seconds)
        self.scatter = np.sort(np.concatenate(list(_ratios(self.seconds).values())))
        self._tables: dict[int, Floats] = {}
        self.ranks = self._ranks()
        self.stretch = stretch or _stretch(self.ranks)
        self.drift = drift if drift is not None else _drift(self._ran(_ratios(self.seconds)))

    @classmethod
    def from_times(cls, times: ServiceTimes) -> BatchModel:
        """Return the model of a record's service times. Raises InputError `batch-implausible`."""
        for part in times.batches:
            if not 1 <= part.batch <= LARGEST_BATCH:
                raise _implausible(
                    f"No server computes batches of {part.batch:,}.",
                    f"Batches have 1 to {LARGEST_BATCH:,} requests.",
                )
        seconds = {part.batch: np.array(part.seconds) for part in times.batches if part.seconds}
        if any((values < 0).any() for values in seconds.values()):
            raise _implausible("No batch takes such a time.", "A time is negative.")
        ran = Counter(times.order)
        if ran and ran != {size: len(values) for size, values in seconds.items()}:
            raise _implausible(
                "The batches of the record contradict their order.",
                "The order names other batches than those that have times.",
            )
        return cls(seconds, times.overhead, times.order, queues=times.queues)

    @property
    def uncertain(self) -> bool:
        """Whether enough batches were measured to say how certain their times are."""
        return sum(map(len, self.seconds.values())) >= ENOUGH_IN_ALL

    @property
    def largest_batch(self) -> int:
        """The largest batch that was measured."""
        return len(self.means)

    def run(self, arrivals: Floats, workers: Workers, seed: int) -> Outcome:
        """Simulate requests that arrive at these seconds, in batches of measured sizes."""
        workers = replace(workers, max_batch=min(workers.max_batch, self.largest_batch))
        services = self._services(seed, workers.max_batch)
        served = simulate_queues(arrivals, services, workers, self.queues, seed)
        return Outcome(served.ends - arrivals + self.overhead, served.busy, served.batches)

    def _services(self, seed: int, largest: int) -> list[Iterator[float]]:
        """Return the seconds of batches of each size, without end."""
        sizes = range(1, largest + 1)
        if self.stretch == 1:
            return [self._at_random(size, seed) for size in sizes]
        replayed = _replayed(self.ranks, self.stretch, np.random.default_rng((seed, 1)))
        if len(self.means) == 1:
            return [drawn(self._table(1), replayed)]
        ranks = itertools.chain.from_iterable(part.tolist() for part in replayed)
        return [self._at_ranks(size, ranks) for size in sizes]

    def _at_random(self, size: int, seed: int) -> Iterator[float]:
        yield from drawn(self._table(size), at_random(np.random.default_rng((seed, size))))

    def _at_ranks(self, size: int, ranks: Iterator[float]) -> Iterator[float]:
        """Yield the seconds of a size at ranks from 0 to 1, which several sizes share."""
        values = self._table(size).tolist()
        count = len(values)
        for rank in ranks:
            yield values[int(rank * count)]

    def _table(self, size: int) -> Floats:
        """Return sorted seconds of a size to draw from, made when the first of them is drawn."""
        if size not in self._tables:
            values = self.seconds.get(size, ())
            self._tables[size] = (
                np.sort(values) if len(values) >= ENOUGH else self.scatter * self.means[size - 1]
            )
        return self._tables[size]

    def _ranks(self) -> Floats:
        """Return where each batch lies among those of its size, from 0 to 1, as they ran."""
        ranks = {}
        for size, values in self.seconds.items():
            among = self._table(size) if len(values) >= ENOUGH else self.scatter * values.mean()
            # In the middle of those that are equal.
            below, up_to = (np.searchsorted(among, values, side) for side in ("left", "right"))
            ranks[size] = np.minimum((below + up_to) / (2 * len(among)), 1 - 1e-9)
        return self._ran(ranks)

    def _ran(self, columns: Mapping[int, Floats]) -> Floats:
        """Return the values of all sizes in the order in which their batches ran."""
        if not len(self.order):
            return np.concatenate(list(columns.values()))
        values = np.empty(len(self.order))
        for size in np.unique(self.order):
            values[self.order == size] = columns[int(size)]
        return values

    def effort(self, workers: Workers) -> float:
        """Return how many requests can be simulated in the time of one of a batch."""
        if workers.places == workers.max_batch == 1:
            return ONE_BY_ONE
        return 1 + PER_LARGER * (workers.max_batch - 1)

    def highest_rate(self, workers: Workers) -> float:
        """Return the requests per second from which on the queue grows without end."""
        return highest_rate(self.means, workers)

    def resampled(self, generator: np.random.Generator) -> BatchModel:
        """Return the model of as many batches, drawn from the measured ones in blocks.

        Blocks are as long as batches in a row resemble each other. Where it is known how the sizes
        took turns, a slow period is slow for all of them. Another measurement is as much faster or
        slower on the whole as parts of this one are.
        """
        speed = math.exp(self.drift * DRIFT_SCALE * generator.standard_t(STRETCHES - 1))
        if not len(self.order):
            order = self.order
            seconds = {size: _in_blocks(values, generator) for size, values in self.seconds.items()}
        else:
            picks = _blocks(len(self.order), self.stretch, len(self.order), generator)
            order, values = self.order[picks], self._ran(self.seconds)[picks]
            # A size that happens not to be picked is as it was measured.
            picked = {int(size): values[order == size] for size in np.unique(order)}
            seconds = self.seconds | picked
        seconds = {size: speed * values for size, values in seconds.items()}
        queues = self.queues
        if queues == "unknown":
            queues = "bound" if generator.integers(2) else "one"
        return BatchModel(seconds, self.overhead, order.tolist(), self.stretch, self.drift, queues)


def _stretch(values: Floats) -> int:
    """Return how many in a row resemble each other; 1 where it is no more than by chance."""
    count = len(values)
    if count < 2 * STRETCHES:
        return 1
    resembling = cautious(autocorrelation_time(values), count) - 1
    return max(1, math.ceil(min(REPLAYED * resembling, count / STRETCHES)))


def _drift(ratios: Floats) -> float:
    """Return the relative standard deviation between parts, beyond what batches explain."""
    count = len(ratios)
    if count < STRETCHES**2:
        return 0.0
    parts = np.array_split(ratios, STRETCHES)
    means = np.array([part.mean() for part in parts])
    within = np.concatenate([part - mean for part, mean in zip(parts, means, strict=True)])
    independent = count / STRETCHES / cautious(autocorrelation_time(within), count)
    return math.sqrt(max(0.0, float(means.var(ddof=1)) - float(within.var()) / independent))


def _implausible(message: str, cause: str) -> InputError:
    return InputError(
        message,
        id="batch-implausible",
        cause=cause,
        remedy="Leave such batches out of the record, or measure again.",
    )


def _blocks(count: int, length: int, total: int, generator: np.random.Generator) -> Indices:
    """Return indices in blocks that begin anywhere; the series is taken as a circle."""
    begins = generator.integers(count, size=-(-total // length))
    indices: Indices = (begins[:, None] + np.arange(length)).ravel()[:total] % count
    return indices


def _in_blocks(values: Floats, generator: np.random.Generator) -> Floats:
    """Return as many values, in blocks as long as values in a row resemble each other."""
    count = len(values)
    # A line that rises has no end of resemblance; eight blocks at least still say how it varies.
    length = math.ceil(min(cautious(autocorrelation_time(values), count), count / STRETCHES))
    drawn_values: Floats = values[_blocks(count, max(1, length), count, generator)]
    return drawn_values


def _replayed(ranks: Floats, stretch: int, generator: np.random.Generator) -> Iterator[Floats]:
    """Yield ranks in stretches that begin anywhere, without end."""
    while True:
        yield ranks[_blocks(len(ranks), stretch, max(CHUNK, stretch), generator)]


def _means(seconds: Mapping[int, Floats]) -> list[float]:
    """Return the mean seconds of every size up to the largest."""
    ends = min(seconds), max(seconds)
    sure = [size for size, values in seconds.items() if len(values) >= ENOUGH or size in ends]
    means: list[float] = np.interp(
        np.arange(1, ends[1] + 1), sure, [seconds[size].mean() for size in sure]
    ).tolist()
    return means


def _ratios(seconds: Mapping[int, Floats]) -> dict[int, Floats]:
    """Return the seconds of each size over their mean."""
    return {
        size: values / mean if (mean := values.mean()) > 0 else np.ones(len(values))
        for size, values in seconds.items()
    }
