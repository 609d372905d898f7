"""A distribution in OpenTelemetry's exponential layout: merges by addition, quantiles ±1.1 %."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from torchgauge.records.record import Record

SCALE = 5
PER_OCTAVE: int = 2**SCALE  # buckets between a value and its double
# Beyond these, 2 ** -40 (a picosecond) and 2 ** 60 (an exabyte), values count in the outer buckets.
LOWEST, HIGHEST = -40 * PER_OCTAVE, 60 * PER_OCTAVE

Count = Annotated[int, Meta(ge=0)]


def boundary(index: float) -> float:
    """Return the lower bound of bucket `index`, which is the upper bound of the one below it."""
    return float(2 ** (index / PER_OCTAVE))


def _share_below(index: int, limit: float, *, of_integers: bool = False) -> float:
    """Return what part of bucket `index` does not exceed a limit, as if its values spread evenly.

    Whole numbers spread over those that the bucket has.
    """
    low, high = boundary(index), boundary(index + 1)
    if of_integers and math.floor(high) > math.floor(low):
        low, high, limit = math.floor(low), math.floor(high), math.floor(limit)
    return min(max((limit - low) / (high - low), 0.0), 1.0)


@functools.lru_cache(4096)  # a page has the same bounds a thousand times
def _bucket_of(bound: float, *, of_integers: bool) -> tuple[int, float]:
    """Return the index of the bucket that a bound is in, and the part that does not exceed it."""
    index = math.ceil(math.log2(bound) * PER_OCTAVE) - 1
    return index, _share_below(index, bound, of_integers=of_integers)


class Histogram(Record, frozen=True, kw_only=True):
    """A distribution of values that are not negative, such as seconds, tokens or bytes.

    The layout is that of OpenTelemetry's exponential histogram at scale 5: `counts[k]` is the
    number of values in (b^i, b^(i+1)], where i = offset + k and b = 2^(1/32). Histograms merge by
    addition (`a + b`) without loss.

    Attributes:
        scale: Always 5.
        offset: The index of the first bucket of `counts`.
        counts: Values by bucket, dense; neither the first nor the last is 0.
        zero_count: Values of 0, and below it.
        sum: The sum of the values, in their unit.
        min: The smallest; None without values.
        max: The largest; None without values.
    """

    scale: Literal[5] = 5
    offset: Annotated[int, Meta(ge=LOWEST, le=HIGHEST)] = 0
    counts: Annotated[tuple[Count, ...], Meta(max_length=HIGHEST - LOWEST + 1)] = ()
    zero_count: Count = 0
    sum: float = 0.0
    min: float | None = None
    max: float | None = None

    def with_buckets(self, buckets: dict[int, int]) -> Histogram:
        """Return the histogram with other counts, given by index of bucket."""
        indices = [index for index, count in buckets.items() if count]
        low, high = min(indices, default=0), max(indices, default=-1)
        counts = tuple(buckets.get(index, 0) for index in range(low, high + 1))
        return msgspec.structs.replace(self, offset=low, counts=counts)

    def buckets(self) -> Iterator[tuple[int, int]]:
        """Yield the index and the count of each bucket that is not empty, in ascending order."""
        for index, count in enumerate(self.counts, start=self.offset):
            if count:
                yield index, count

    @property
    def count(self) -> int:
        """The number of values."""
        return self.zero_count + sum(self.counts)

    @property
    def mean(self) -> float | None:
        """The exact mean; None without values."""
        count = self.count
        return self.sum / count if count else None

    def quantile(self, fraction: float) -> float | None:
        """Return the smallest value that a share `fraction` of all does not exceed, within 1.1 %.

        None without values. The estimate is the geometric middle of the value's bucket.
        """
        count = self.count
        if not count or self.min is None or self.max is None:
            return None
        rank = max(math.ceil(round(fraction * count, 9)), 1)
        if rank <= self.zero_count:
            return min(self.min, 0.0)
        if rank == count:
            return self.max
        values_below = self.zero_count
        for index, number in self.buckets():
            values_below += number
            if values_below >= rank:
                return min(max(boundary(index + 0.5), self.min), self.max)
        return self.max

    def count_above(self, limit: float) -> float:
        """Return how many values exceed a limit; within its bucket they count as spread evenly."""
        if self.max is None or limit >= self.max:
            return 0.0
        above = float(self.zero_count) if limit < 0 else 0.0
        for index, count in self.buckets():
            above += count * (1 - _share_below(index, limit))
        return above

    def counts_to(self, bounds: Sequence[float], *, of_integers: bool = False) -> Iterator[int]:
        """Yield how many values do not exceed each of ascending bounds above 0, rounded down.

        Within a bound's bucket they count as spread evenly, of integers over these alone.
        As a histogram grows, none of the counts decreases.
        """
        buckets, position, below = list(self.buckets()), 0, self.zero_count
        for bound in bounds:
            index, share = _bucket_of(bound, of_integers=of_integers)
            while position < len(buckets) and buckets[position][0] < index:
                below += buckets[position][1]
                position += 1
            is_inside = position < len(buckets) and buckets[position][0] == index
            yield below + (int(buckets[position][1] * share) if is_inside else 0)

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram of both's values."""
        buckets = Counter(dict(self.buckets()))
        buckets.update(dict(other.buckets()))
        ends = [end for end in (self.min, other.min, self.max, other.max) if end is not None]
        return Histogram(
            zero_count=self.zero_count + other.zero_count,
            sum=self.sum + other.sum,
            min=min(ends, default=None),
            max=max(ends, default=None),
        ).with_buckets(buckets)

    def since(self, earlier: Histogram) -> Histogram:
        """Return the values that were added to `earlier`, a state of the same growing histogram.

        `min` and `max` are exact if they were reached since, else the bounds of the buckets.
        """
        buckets = Counter(dict(self.buckets()))
        buckets.subtract(dict(earlier.buckets()))
        zero_count = self.zero_count - earlier.zero_count
        indices = [index for index, count in buckets.items() if count]
        low = boundary(min(indices)) if indices else 0.0
        high = boundary(max(indices) + 1) if indices else 0.0
        minimum = self.min if self.min != earlier.min else 0.0 if zero_count else low
        maximum = self.max if self.max != earlier.max else high
        has_values = bool(indices or zero_count)
        return Histogram(
            zero_count=zero_count,
            sum=self.sum - earlier.sum,
            min=minimum if has_values else None,
            max=maximum if has_values else None,
        ).with_buckets(buckets)
