"""The layers that a failing gate names, most contribution first."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.comparison import Comparison, Place
from torchgauge.records.verdict import Ruling

MAX_LAYERS = 5
# Of the largest contribution: a far smaller one is not worth naming, even if significant.
MIN_SHARE = 0.05


def regressed_layers(comparison: Comparison, rulings: tuple[Ruling, ...]) -> tuple[str, ...]:
    """Return the regressed layers as text, marked not proven where none is significant."""
    failed = {ruling.metric: ruling for ruling in rulings if ruling.outcome == "fail"}
    descriptions: list[str] = []
    if {"flops", "macs"} & set(failed):
        descriptions += _by_work(comparison.layers)
    if any(ruling.how == "measured" and ruling.method != "exact" for ruling in failed.values()):
        descriptions += _by_time(comparison.layers)
    return tuple(descriptions)


def _by_time(layers: tuple[Place, ...]) -> list[str]:
    slower = sorted(
        (place for place in layers if place.contribution > 0), key=lambda place: -place.contribution
    )
    proven = [place for place in slower if place.significant]
    if proven:
        return [_slower(place) for place in _largest(proven)]
    return [f"{_slower(place)} (not proven)" for place in _largest(slower)[:3]]


def _largest(places: list[Place]) -> list[Place]:
    return [
        place
        for place in places[:MAX_LAYERS]
        if place.contribution >= MIN_SHARE * places[0].contribution
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
    increases = [
        (place, (place.current_flops or 0) - (place.baseline_flops or 0)) for place in layers
    ]
    largest = sorted(increases, key=lambda increase: -increase[1])[:MAX_LAYERS]
    return [
        f"{_name(place)} +{units.count(flops, 3)} FLOP" for place, flops in largest if flops > 0
    ]


def _name(place: Place) -> str:
    return f"{place.name or 'the model itself'} ({place.type})" if place.type else place.name
