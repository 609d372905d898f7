"""One earlier latency measurement, as the host remembers it."""

from __future__ import annotations

import msgspec

from torchgauge.records.record import Record


class PastRun(Record, frozen=True, kw_only=True):
    """The part of a latency measurement that the host remembers.

    Attributes:
        target: What was timed, and the software and settings that decide its time.
        created: ISO 8601 in UTC.
        medians: Seconds per call, the median of each process in order.
        yardstick: Seconds of a piece of reference work by its kind, the median over processes;
            empty where none was timed.
        yardsticks: The same of each process in order; empty where some timed none.
        busy: True where other processes took more than a tenth of the machine meanwhile.
    """

    target: str
    created: str
    medians: tuple[float, ...]
    yardstick: dict[str, float] = msgspec.field(default_factory=dict)
    yardsticks: tuple[dict[str, float], ...] = ()
    busy: bool = False
