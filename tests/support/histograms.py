"""Histograms of known values, which need no series of a monitor."""

import math
from collections import Counter

from torchgauge.records.monitoring.histogram import HIGHEST, LOWEST, PER_OCTAVE, Histogram


def bucket(value):
    """Return the index of the bucket of a positive value: (b^i, b^(i+1)], b = 2^(1/32).

    A value within a few units in the last place of a boundary may count in its neighbour.
    """
    return min(max(math.ceil(math.log2(value) * PER_OCTAVE) - 1, LOWEST), HIGHEST)


def histogram_of(values):
    values = list(values)
    return Histogram(
        zero_count=sum(value <= 0 for value in values),
        sum=math.fsum(values),
        min=min(values, default=None),
        max=max(values, default=None),
    ).with_buckets(Counter(bucket(value) for value in values if value > 0))
