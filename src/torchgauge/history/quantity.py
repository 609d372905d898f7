"""Amounts with a unit as a person writes them: "12ms", "2GiB", "3%", "1000samples/s", "30d"."""

from __future__ import annotations

import re
from datetime import timedelta

from torchgauge.analyze.gate.quantities import DECIMAL, LARGEST, SIZES, TIMES
from torchgauge.errors import InputError

_AMOUNT = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([^\d\s]\S*)?\s*", re.IGNORECASE)
_UNITS: dict[str, tuple[float, str]] = {
    **{name: (by, "") for name, by in DECIMAL.items()},
    **{name: (by, "s") for name, by in TIMES.items()},
    **{name: (by, "B") for name, by in SIZES.items()},
    "/s": (1, "1/s"),
    "%": (0.01, "ratio"),
    "W": (1, "W"),
}
_PERIODS = {"h": "hours", "d": "days", "w": "weeks"}


def amount(text: object) -> tuple[float, str]:
    """Return the amount in SI units and the unit of `records/figures.py`; "" for a plain number.

    Raises InputError `quantity`.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        if not abs(text) <= LARGEST:  # TOML has infinities, and what is no number
            raise _unfit(text, "an amount that anything has")
        return float(text), ""
    number, unit = _parts(text)
    # 1000samples/s: what is counted is the figure's business.
    unit = "/s" if unit.endswith("/s") else unit
    if unit not in _UNITS:
        raise _unfit(text, "a number with a unit such as ms, s, MB, GiB, /s or %")
    factor, si_unit = _UNITS[unit]
    if abs(number * factor) > LARGEST:
        raise _unfit(text, "an amount that anything has")
    return number * factor, si_unit


def period(text: object) -> timedelta:
    """Return a time span: "90d", "12h", "4w". Raises InputError `quantity`."""
    number, unit = _parts(text)
    # More than a thousand years is a slip of the pen, and more than dates can hold.
    if unit not in _PERIODS or not 0 <= number <= 100_000:
        raise _unfit(text, "a time span such as 12h, 90d or 4w")
    return timedelta(**{_PERIODS[unit]: number})


def _parts(text: object) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise _unfit(text, "a number with its unit")
    return float(match[1]), match[2] or ""


def _unfit(text: object, description: str) -> InputError:
    return InputError(
        f"'{text}' is not {description}.", id="quantity", remedy="Write it as 12ms or 2GB."
    )
