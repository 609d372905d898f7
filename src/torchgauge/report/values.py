"""A figure's value as text by the SI unit that records give."""

from __future__ import annotations

from torchgauge import units


def value(number: float | int | None, unit: str) -> str:
    """Format a figure: (0.0123, "s") → '12.30 ms'; None is 'unknown'."""
    if number is None:
        return units.UNKNOWN
    if unit == "s":
        return units.time(number)
    if unit == "B":
        return units.size(number)
    if unit == "ratio":
        return units.percent(number)
    if unit == "1/s":
        return units.rate(number, "")
    if unit == "B/s":
        return f"{units.size(number)}/s"
    return units.count(number) + (f" {unit}" if unit else "")
