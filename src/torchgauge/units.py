"""The one policy for showing quantities: SI in, short text with a unit out."""

from __future__ import annotations

import math

UNKNOWN = "unknown"
# Beyond it no figure of a measurement lies; a record that was edited by hand may hold one.
_PLAIN_RANGE = (1e-15, 1e18)

# From this ratio on both ends of an interval have their own unit.
WIDE = 100

_Steps = tuple[tuple[float, str], ...]
_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
# The field says 7 B parameters, and 7 GFLOP.
_ELEMENTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_METRICS_OF_ELEMENTS = ("parameters", "params", "trainable_parameters")
_ENERGY = ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"))
_DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def with_minus(number: str) -> str:
    """Return a formatted number with a minus sign in place of a leading hyphen: '-1.2' → '−1.2'."""
    return f"−{number[1:]}" if number.startswith("-") else number


def significant(value: float, digits: int = 3) -> str:
    """Return `value` with `digits` significant digits, and an exponent only where it is absurd."""
    if value == 0:
        return "0"
    if not _PLAIN_RANGE[0] < abs(value) < _PLAIN_RANGE[1]:
        return with_minus(f"{float(value):.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return with_minus(f"{rounded:,.{max(decimals, 0)}f}")


def _scaled(value: float, steps: _Steps, digits: int) -> tuple[str, str]:
    for index, (factor, prefix) in enumerate(steps):
        if abs(value) >= factor * (1 - 0.5 * 10**-digits) or index == len(steps) - 1:
            return significant(value / factor, digits), prefix
    raise AssertionError("steps is never empty")


def time(seconds: float | None, digits: int = 4) -> str:
    """Format a duration in seconds: 0.01234 → '12.34 ms'."""
    if seconds is None:
        return UNKNOWN
    if seconds == 0:
        return "0 s"
    number, unit = _scaled(seconds, _TIME, digits)
    return f"{number} {unit}"


def energy(joules: float | None, digits: int = 4) -> str:
    """Format an energy in joules: 0.01234 → '12.34 mJ'."""
    if joules is None:
        return UNKNOWN
    number, unit = _scaled(joules, _ENERGY, digits)
    return f"{number} {unit}"


def times(low: float, high: float, digits: int = 4) -> str:
    """Format an interval of durations, in one unit unless it is wide: '12.21 … 12.47 ms'."""
    if 0 < low < high / WIDE:
        return f"{time(low, digits)} … {time(high, digits)}"
    factor, unit = next(((f, u) for f, u in _TIME if high >= f), _TIME[-1])
    return f"{significant(low / factor, digits)} … {significant(high / factor, digits)} {unit}"


def duration(seconds: float) -> str:
    """Format a wait: 200 → '3 min'; no more digits than a guess has."""
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def size(count: float | None, digits: int = 4) -> str:
    """Format bytes in decimal units (1 MB = 10⁶ B): 44700000 → '44.70 MB'."""
    if count is None:
        return UNKNOWN
    rounded = round(count)
    if abs(rounded) < 1000:
        return with_minus(f"{rounded} B")
    number, prefix = _scaled(rounded, _DECIMAL, digits)
    return f"{number} {prefix}B"


def count(number: float | None, digits: int = 4) -> str:
    """Format a count: 25557032 → '25.56 M'; below 10,000 it stays exact."""
    return _counted(number, _DECIMAL, digits)


def elements(number: float | None, digits: int = 4) -> str:
    """Format a number of parameters or other elements as `count`, billions as B: '7.242 B'."""
    return _counted(number, _ELEMENTS, digits)


def _counted(number: float | None, steps: _Steps, digits: int) -> str:
    if number is None:
        return UNKNOWN
    if abs(number) < 10_000:
        return (
            with_minus(f"{number:,.0f}") if number == round(number) else significant(number, digits)
        )
    text, prefix = _scaled(number, steps, digits)
    return f"{text} {prefix}"


def rate(per_second: float | None, unit: str, digits: int = 4) -> str:
    """Format a rate: (81.2, 'images') → '81.20 images/s'."""
    if per_second is None:
        return UNKNOWN
    if per_second < 10_000:
        return f"{significant(per_second, digits)} {unit}/s"
    text, prefix = _scaled(per_second, _DECIMAL, digits)
    return f"{text} {prefix} {unit}/s".replace("  ", " ")


def amount(value: float | None, unit: str, metric: str = "", digits: int = 4) -> str:
    """Format an amount of a headline figure by its SI unit ("s", "B", "ratio", "1/s", "").

    Of counts the `metric` tells whether they are of elements.
    """
    if unit == "s":
        return time(value, digits)
    if unit == "J":
        return energy(value, digits)
    if unit == "ratio":
        return percent(value, digits)
    if unit.startswith("B"):
        return size(value, digits) + unit[1:] * (value is not None)
    if not unit or value is None:
        form = elements if metric in _METRICS_OF_ELEMENTS else count
        return form(value, digits)
    number = count(value, digits) if value >= 10_000 else significant(value, digits)
    return f"{number} {unit.removeprefix('1')}"


def amounts(old: float | None, new: float | None, unit: str, metric: str = "") -> tuple[str, str]:
    """Format two exact amounts, with more digits where they differ in those alone."""
    for digits in range(4, 16):
        texts = amount(old, unit, metric, digits), amount(new, unit, metric, digits)
        if old == new or texts[0] != texts[1]:
            break
    return texts


def percent(fraction: float | None, digits: int = 2, smallest: float = 1e-3) -> str:
    """Format a fraction: 0.0123 → '1.2 %'; what is smaller than `least` is but said to be."""
    if fraction is None:
        return UNKNOWN
    if 0 < abs(fraction) < smallest:
        return f"<{significant(100 * smallest, 1)} %"
    return f"{significant(100 * fraction, digits)} %"


def share(fraction: float, smallest: float = 1e-3) -> str:
    """Format a share in a column: 0.0123 → '1.2 %', 0 → '0 %'; a tiny one is shown as "<0.1 %"."""
    if fraction == 0:
        return "0 %"
    return percent(fraction) if 0 < fraction < smallest else f"{100 * fraction:.1f} %"
