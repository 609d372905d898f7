"""Upper bounds of the buckets that readers of metrics without native histograms have."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import msgspec

from torchgauge.analyze.history.alerts import Rule
from torchgauge.analyze.monitoring.window_alerts import WindowRule, fits
from torchgauge.records.headline.figure import Unit
from torchgauge.records.monitoring.window import Window

# Ten a decade, preferred numbers of ISO 3 (R10): 100 ms is one, and none is more than 28 % above
# the one before it.
_PREFERRED = ("1", "1.25", "1.6", "2", "2.5", "3.15", "4", "5", "6.3", "8")
_DIGITS = tuple("123456789")  # of numbers of things: none is between these
# 10 µs to 100 s, 1 to a million, 1 kB to 1 TB; other units a millionth to a million.
_DECADES: dict[Unit, range] = {"s": range(-5, 2), "": range(6), "B": range(3, 12)}
_OTHER_DECADES = range(-6, 6)


@functools.cache
def default_bounds(unit: Unit) -> tuple[float, ...]:
    """Return ten bounds a decade of the values that a unit usually has."""
    decades = _DECADES.get(unit, _OTHER_DECADES)
    digits = {decade: _DIGITS if (unit, decade) == ("", 0) else _PREFERRED for decade in decades}
    bounds = [float(f"{digit}e{decade}") for decade in decades for digit in digits[decade]]
    return (*bounds, float(f"1e{decades[-1] + 1}"))


def bounds_of(window: Window) -> tuple[float, ...]:
    """Return the upper bounds that a window was given, ascending, or the usual ones."""
    return tuple(sorted(set(window.buckets))) or default_bounds(window.unit)


def with_limits(window: Window, rules: Iterable[Rule | WindowRule]) -> Window:
    """Return the window with the limits of the rules that fit it among its bounds."""
    limits = [limit for rule in rules if fits(rule, window) for limit in _limits(rule, window)]
    if not limits:
        return window
    bounds = tuple(sorted({*bounds_of(window), *limits}))
    return msgspec.structs.replace(window, buckets=bounds)


def _limits(rule: Rule | WindowRule, window: Window) -> Iterator[float]:
    if isinstance(rule, WindowRule):
        limit = rule.objective.limit if rule.kind == "objective" else None
    else:
        is_value = rule.kind == "threshold" and rule.unit == window.unit
        limit = rule.limit if is_value else None
    if limit is not None and limit > 0:
        yield limit
