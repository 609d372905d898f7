"""How fast a monitor's calls use up the errors that an objective allows, over two spans of time.

Source: Google, "The Site Reliability Workbook" (2018), chapter 5, "Multiwindow, multi-burn-rate
alerts": over a long span that shows it matters, and a short one that shows it still goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchgauge.records.monitoring.window import Window

SHORT, LONG = 300.0, 3600.0  # seconds
# In an hour it uses 2 % of what is allowed in 30 days.
BURN = 14.4
# Bad calls in the long span below which a rate is chance.
FEWEST_BAD = 5


@dataclass(frozen=True)
class Objective:
    """A share of calls that is to be good: to succeed, in at most `limit` (SI units) if given."""

    share: float
    limit: float | None = None


@dataclass(frozen=True)
class BurnRate:
    """Bad calls over those allowed, of the two spans; None of a span without calls.

    1 uses up exactly what the objective allows. `bad` is how many calls of the long span were bad.
    """

    short: float | None
    long: float | None
    bad: float

    def exceeds(self, burn: float = BURN) -> bool:
        """Whether both spans burn faster than that, by more than single calls."""
        rates = (self.short, self.long)
        return self.bad >= FEWEST_BAD and all(rate is not None and rate > burn for rate in rates)


def burn_rate(windows: Sequence[Window], objective: Objective, now: float) -> BurnRate:
    """Return the burn rates of one series until `now` (seconds since 1970)."""
    short, _ = _burned(windows, objective, now - SHORT, now)
    long, bad = _burned(windows, objective, now - LONG, now)
    return BurnRate(short, long, bad)


def bad_calls(window: Window, objective: Objective) -> float:
    """Return the calls that failed, or took longer than the limit.

    Of calls that were not all timed as large a share took longer as of the timed ones.
    """
    timed = window.histogram.count
    if objective.limit is None or not timed:
        return float(window.failed)
    slow = window.histogram.count_above(objective.limit) / timed
    return window.failed + slow * (window.count - window.failed)


def _burned(
    windows: Iterable[Window], objective: Objective, begin: float, end: float
) -> tuple[float | None, float]:
    """Return the burn rate of the windows mostly within a span, and their bad calls."""
    inside = [window for window in windows if begin < (window.begin + window.end) / 2 <= end]
    calls = sum(window.count for window in inside)
    bad = sum(bad_calls(window, objective) for window in inside)
    return (bad / calls / (1 - objective.share) if calls else None), bad
