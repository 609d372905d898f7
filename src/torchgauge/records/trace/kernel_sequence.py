"""A sequence of kernels that a stream repeats, such as those of one layer of many."""

from __future__ import annotations

from torchgauge.records.record import Record


class KernelSequence(Record, frozen=True, kw_only=True):
    """Kernels and copies that ran one after the other, in the same order, again and again.

    `names` are those of one repetition, `durations` their median seconds in the same order.
    `repeats` counts them in `runs` uninterrupted series. `time` is the seconds of all of them,
    `share` that of all device time, `span` the median seconds from the begin of one repetition to
    that of the next.
    """

    device: int | None
    stream: int | None
    names: tuple[str, ...]
    durations: tuple[float, ...]
    repeats: int
    runs: int
    time: float
    share: float
    span: float
