"""Throughput from latency: the same measurement, read as work per second."""

from __future__ import annotations

import msgspec

from torchgauge.records.latency.latency import Latency, Throughput
from torchgauge.records.target import TargetDescription


def throughput(latency: Latency, target: TargetDescription) -> Throughput | None:
    """Return what one call processes over the median latency; None for a latency of zero.

    `interval` is that of `calls`; the other rates are multiples of it. Nothing overlaps with the
    next call: a server with several workers may do better.
    """
    if latency.median <= 0:
        return None
    calls = 1 / latency.median
    interval = latency.interval
    return Throughput(
        calls=calls,
        samples=None if target.batch is None else target.batch * calls,
        tokens=None if target.tokens is None else target.tokens * calls,
        images=None if target.images is None else target.images * calls,
        interval=None
        if interval is None or interval.low <= 0
        else msgspec.structs.replace(interval, low=1 / interval.high, high=1 / interval.low),
    )
