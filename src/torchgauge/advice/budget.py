"""The options of an experiment, and how its time is spent."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

# A process that was expected to end in time may run on so long: a share, and seconds.
GRACE_SHARE, GRACE = 0.05, 2.0
# Seconds by which timers may be early.
CLOSE = 0.1


class BudgetOver(Exception):  # noqa: N818 - it ends the search, and is no fault
    """A process was stopped since the budget, and the grace after it, were over."""


class Budget:
    """Seconds for everything from the moment that this is made; None for as long as it takes.

    `spent` seconds of it were gone before that.
    Loading, compilation and confirmation count. What is running `GRACE_SHARE` of the budget and
    `GRACE` seconds after its end is stopped; ending and reporting come on top.
    """

    def __init__(
        self,
        seconds: float | None = None,
        now: Callable[[], float] = time.monotonic,
        *,
        spent: float = 0.0,
    ) -> None:
        self.seconds = seconds
        self.now = now
        self.began = now() - spent

    def elapsed(self) -> float:
        """Return the seconds since it began."""
        return self.now() - self.began

    def remaining(self, share: float = 1.0) -> float | None:
        """Return the seconds left of a share of it, negative when over; None without a budget."""
        return None if self.seconds is None else share * self.seconds - self.elapsed()

    def fits(self, duration: float, share: float = 1.0) -> bool:
        """Return whether work of `seconds` ends within a share of it."""
        remaining = self.remaining(share)
        return remaining is None or duration <= remaining

    def is_stopped(self) -> bool:
        """Tell whether running work has been stopped, or is about to be."""
        remaining = self.until_stop()
        return remaining is not None and remaining < CLOSE

    def until_stop(self) -> float | None:
        """Return the seconds after which running work is stopped, at least 0; None for never."""
        if self.seconds is None:
            return None
        return max(0.0, self.seconds * (1 + GRACE_SHARE) + GRACE - self.elapsed())


@dataclasses.dataclass(frozen=True)
class AdviceOptions:
    """What is tried on a model, and which changes of its output are accepted.

    Attributes:
        metric: A number of the outputs that decides, as a function or by its name
            (`file.py:function`); None compares the outputs themselves.
        tolerance: The largest error allowed; None is what the arithmetic explains.
        candidates: Ids of what is tried; None is all.
        latency_limit: Seconds that a call of a larger batch may take; None tries none.
        budget: The time for everything, from the moment that it was made.
    """

    metric: Callable[[Any], float] | str | None = None
    tolerance: float | None = None
    candidates: Sequence[str] | None = None
    latency_limit: float | None = None
    budget: Budget = dataclasses.field(default_factory=Budget)
