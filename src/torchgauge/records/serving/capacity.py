"""The highest rate that a server answers within the goals."""

from __future__ import annotations

from torchgauge.records.record import Interval, Record


class Capacity(Record, frozen=True, kw_only=True):
    """The highest rate that met all goals, in requests per second.

    Attributes:
        rate: It; None where no rate that was tried met them for sure.
        interval: Where it lies. Of a search, the 95 % interval of the fit, whose lower end is
            `rate`; of given rates, from the highest that met the goals to the lowest that missed.
        searched: Whether levels were chosen to find it; else they are those of given rates.
        above_all_tried: Whether the highest that was tried met them: `rate` is a lower bound.
        reason: What ended the search, in a sentence.
        confirmed: Whether a second run at `rate` met the goals: False where it surely missed them;
            None where it does not decide that, or there was none.
    """

    rate: float | None = None
    interval: Interval | None = None
    searched: bool = False
    above_all_tried: bool = False
    reason: str = ""
    confirmed: bool | None = None
