"""Where a device's time went: arithmetic, communication, copies, and idle time with its cause."""

from __future__ import annotations

from torchgauge.records.record import Record


class Idle(Record, frozen=True, kw_only=True):
    """Seconds in which nothing ran, by what was missing; together they are all of the idle time.

    `host_wait`: the host had not launched the next piece of work when the one before it ended.
    `kernel_wait`: it had, and the next began after the few microseconds that the device takes from
    one to the next. `other`: it had, and the next waited longer (for an event, another stream, room
    on the device), or the trace has no launch of it. `outside`: before the first piece of work of
    the stream and after its last. `between_launches` is the part of `host_wait` in pauses of at
    most 0.5 ms: what a host takes from one launch to the next.
    """

    host_wait: float = 0.0
    kernel_wait: float = 0.0
    other: float = 0.0
    outside: float = 0.0
    between_launches: float | None = None

    @property
    def total(self) -> float:
        """Seconds of all causes."""
        return self.host_wait + self.kernel_wait + self.other + self.outside


class Breakdown(Record, frozen=True, kw_only=True):
    """The time of a device, or of one of its streams, in seconds.

    `window` is the time from the begin of the device's first piece of work to the end of its last,
    for its streams too: `compute` + `exposed_communication` + `exposed_copies` + `idle` = window.
    `compute` is the time in which any kernel ran that is no communication. What is exposed ran
    while nothing of the former did; `communication` and `copies` are all there was. Times in which
    several ran at once count once. `activities` is the number of kernels, copies and memory sets.
    """

    window: float
    compute: float
    communication: float
    copies: float
    exposed_communication: float
    exposed_copies: float
    idle: Idle
    activities: int

    @property
    def busy(self) -> float:
        """Seconds in which anything ran."""
        return self.compute + self.exposed_communication + self.exposed_copies

    @property
    def overlap(self) -> float | None:
        """The share of communication beside which a kernel computed; None without any."""
        if not self.communication:
            return None
        return 1 - self.exposed_communication / self.communication


class StreamTime(Record, frozen=True, kw_only=True):
    """The breakdown of one stream; `stream` is None where the trace does not say."""

    stream: int | None
    breakdown: Breakdown


class DeviceTime(Record, frozen=True, kw_only=True):
    """The breakdown of a device and of each of its streams."""

    device: int | None
    breakdown: Breakdown
    streams: tuple[StreamTime, ...] = ()
