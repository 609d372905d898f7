"""Figures of energy: joules of a call, a sample and a token, and the power."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from torchgauge.records.headline.figure import Figure, Named
from torchgauge.records.work.energy import Energy

ENERGY: Named = {
    "energy": ("J", "Energy of a call"),
    "energy_per_sample": ("J", "Energy of a sample"),
    "energy_per_token": ("J", "Energy of a token"),
    "energy_above_idle": ("J", "Energy of a call less that of the idle machine"),
    "energy_power": ("W", "Power during the calls"),
}


def energy_figures(energy: Energy | None) -> Iterator[Figure]:
    """Yield the figures; all unknown where no energy was measured."""
    at_least = energy is not None and energy.at_least
    for name, (unit, text) in ENERGY.items():
        field = "joules" if name == "energy" else name.removeprefix("energy_")
        value = getattr(energy, field, None)
        bounded = name in ("energy", "energy_per_sample", "energy_per_token")
        interval = None
        if bounded and value and energy is not None and energy.interval and energy.joules:
            share, ends = value / energy.joules, energy.interval
            interval = msgspec.structs.replace(ends, low=ends.low * share, high=ends.high * share)
        yield Figure(name, unit, "measured", text, value, bounded, interval, at_least=at_least)
