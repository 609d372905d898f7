"""How fast the machine was while a latency was measured."""

from __future__ import annotations

from torchgauge.records.record import How, Interval, Record


class Yardstick(Record, frozen=True, kw_only=True):
    """Reference work timed between the calls, and the machine's speed that follows from it.

    Attributes:
        times: Seconds of each fixed piece of work by its kind, the median over processes:
            "matmul", "copy", "threads" (torch's threads meeting again and again), "python",
            "dispatch", on a GPU also "device" and "launch". "waiting" is the seconds that passed
            for one that the calling thread ran, "faulting" the seconds that the page faults of a
            call take at a microsecond each.
        speed: The machine's speed in this run over its usual one, 1 as ever; None where too few
            earlier runs on this host are remembered.
        speed_interval: The 95 % interval of `speed`, from how much the kinds disagree.
        runs: Earlier runs that `speed` rests on.
        how: How `speed` is known.
    """

    times: dict[str, float]
    speed: float | None = None
    speed_interval: Interval | None = None
    runs: int = 0
    how: How = "estimated"

    @property
    def unusual(self) -> bool:
        """True where the speed differs significantly from the usual."""
        interval = self.speed_interval
        return interval is not None and not interval.low <= 1 <= interval.high
