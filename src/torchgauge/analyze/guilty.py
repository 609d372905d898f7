"""What a failing gate names: the layers that got worse, most contribution first."""

from __future__ import annotations

from torchgauge import units
from torchgauge.model.comparison import Comparison, Place
from torchgauge.model.verdict import Ruling

MOST = 5
# Of the largest contribution: what is far smaller is significant at most, and nobody's concern.
WORTH_NAMING = 0.05


def guilty(comparison: Comparison, rulings: tuple[Ruling, ...]) -> tuple[str, ...]:
    """Return the layers to blame for what fails, said as not proven where none is significant."""
    failed = {ruling.metric: ruling for ruling in rulings if ruling.outcome == "fail"}
    found: list[str] = []
    if {"flops", "macs"} & set(failed):
        found += _by_work(comparison.layers)
    if any(ruling.how == "measured" and ruling.method != "exact" for ruling in failed.values()):
        found += _by_time(comparison.layers)
    return tuple(found)


def _by_time(layers: tuple[Place, ...]) -> list[str]:
    slower = sorted(
        (place for place in layers if place.contribution > 0), key=lambda one: -one.contribution
    )
    proven = [place for place in slower if place.significant]
    if proven:
        return [_slower(place) for place in _worth_naming(proven)]
    return [f"{_slower(place)} (not proven)" for place in _worth_naming(slower)[:3]]


def _worth_naming(places: list[Place]) -> list[Place]:
    return [
        place
        for place in places[:MOST]
        if place.contribution >= WORTH_NAMING * places[0].contribution
    ]


def _slower(place: Place) -> str:
    change = "" if place.change is None else f" {_percent(place.change)}"
    ends = place.interval
    if change and ends is not None:
        change += f" [{_percent(ends.low)}, {_percent(ends.high)}]"
    return f"{_name(place)}{change}, +{units.time(place.contribution, 3)}"


def _percent(change: float) -> str:
    return f"{100 * change:+.1f} %".replace("-", "−")


def _by_work(layers: tuple[Place, ...]) -> list[str]:
    more = [(place, (place.current_flops or 0) - (place.baseline_flops or 0)) for place in layers]
    more = sorted((one for one in more if one[1] > 0), key=lambda one: -one[1])
    return [f"{_name(place)} +{units.count(flops, 3)} FLOP" for place, flops in more[:MOST]]


def _name(place: Place) -> str:
    return f"{place.name or 'the model itself'} ({place.type})" if place.type else place.name
