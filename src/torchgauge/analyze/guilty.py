"""Who is to blame: the places that a failing gate names, most contribution first."""

from __future__ import annotations

from torchgauge import units
from torchgauge.model.comparison import Comparison, Place

MOST = 5
# Without a test only a place that adds so much of the change is named.
LEAST_SHARE = 0.1
# Of the largest contribution.
WORTH_IT = 0.05


def guilty(comparison: Comparison) -> tuple[str, ...]:
    """Return the layers that surely got slower, and the places that do more work.

    Where none is proven, those with the largest contributions are named and said to be unproven.
    """
    proven = [one for one in comparison.layers if one.significant and one.contribution > 0]
    more = [one for one in comparison.layers if not one.significant and _more_work(one)]
    if proven or more:
        more.sort(key=lambda one: -_added(one))
        return tuple(map(_said, (*_worth_it(_most(proven)), *more)))[:MOST]
    step = comparison.step_change or 0.0
    likely = [one for one in comparison.layers if one.contribution > LEAST_SHARE * max(step, 0.0)]
    named = _most([one for one in likely if one.contribution > 0])
    return tuple(f"{_said(one)}, not proven" for one in named[:MOST])


def _most(places: list[Place]) -> list[Place]:
    return sorted(places, key=lambda one: -one.contribution)


def _worth_it(places: list[Place]) -> list[Place]:
    # Significant and tiny: what an overhead of tenths of a microsecond does is nobody's concern.
    return [one for one in places if one.contribution >= WORTH_IT * places[0].contribution]


def _more_work(one: Place) -> bool:
    return _added(one) > 0


def _added(one: Place) -> int:
    return (one.current_flops or 0) - (one.baseline_flops or 0)


def _said(one: Place) -> str:
    kind = f" ({one.type})" if one.type else ""
    parts = []
    if one.change is not None and (one.significant or not _more_work(one)):
        reach = ""
        if one.interval is not None:
            reach = f" [{_percent(one.interval.low)}, {_percent(one.interval.high)}]"
        parts.append(f"{_percent(one.change)}{reach}, {_signed(one.contribution)}")
    if _more_work(one):
        new = "new: " if one.appeared else ""
        parts.append(f"{new}+{units.count(_added(one))} FLOP")
    return f"{one.name or 'the model itself'}{kind} {', '.join(parts)}"


def _percent(change: float) -> str:
    return f"{100 * change:+.1f} %".replace("-", "−")


def _signed(seconds: float) -> str:
    return ("−" if seconds < 0 else "+") + units.time(abs(seconds), 3)
