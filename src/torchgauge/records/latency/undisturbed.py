"""What a call takes while no other process disturbs it."""

from __future__ import annotations

from torchgauge.records.record import How, Interval, Record


class Undisturbed(Record, frozen=True, kw_only=True):
    """The time of a call of which no other process takes a part, on a machine that was busy.

    Attributes:
        value: Seconds: the sum of each layer's least time, or the fastest call if that is shorter;
            the least of the processes. On an idle machine typical calls take a little longer.
        interval: Its 95 % interval for another run, busy or not.
        speed: The machine's speed beside the other processes, over that without: `value` over the
            measured median.
        how: How all of it is known.
    """

    value: float
    interval: Interval
    speed: float
    how: How = "estimated"
