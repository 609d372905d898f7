"""The one policy for parsing quantities: "100ms", "2GiB", "4GFLOP", "3%", "30d" to SI."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import NamedTuple

from torchgauge.errors import InputError

DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
TIMES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "μs": 1e-6, "us": 1e-6, "ns": 1e-9}
SIZES = {"B": 1.0, **{f"{prefix}B": scale for prefix, scale in (DECIMAL | BINARY).items()}}
ENERGIES = {"J": 1.0, "kJ": 1e3, "mJ": 1e-3, "µJ": 1e-6, "μJ": 1e-6, "uJ": 1e-6, "Wh": 3600.0}
COUNTS = {
    f"{prefix}{operation}": scale
    for prefix, scale in DECIMAL.items()
    for operation in ("", "FLOP", "FLOPs", "MAC", "MACs")
} | {"B": 1e9}  # of parameters, as they are shown
SHARES = {"%": 0.01}
_SCALES = {"s": TIMES, "B": SIZES, "J": ENERGIES, "": COUNTS, "ratio": SHARES}
# The quantity that a rate counts, by word; servers name a call a request.
RATES = {
    word: quantity
    for quantity, words in {
        "samples": ("sample", "samples"),
        "tokens": ("token", "tokens"),
        "images": ("image", "images"),
        "calls": ("call", "calls", "request", "requests"),
    }.items()
    for word in words
}
EXAMPLES = {"s": "100ms", "B": "2GB", "": "25M", "1/s": "1000samples/s", "ratio": "1%", "J": "2J"}
# The largest amount accepted, so that what is computed from one stays finite.
LARGEST = 1e30
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_AMOUNT = re.compile(rf"\s*{_NUMBER}([eE][+-]?\d+)?\s*(.*?)\s*", re.ASCII | re.DOTALL)
_SHARE = re.compile(rf"\s*{_NUMBER}\s*%\s*")
# In files of rules: with a sign, and a unit of one word.
_SETTING = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([^\d\s]\S*)?\s*", re.IGNORECASE)
# In messages of torch's, whose sizes are in binary units.
_REPORTED = r"([\d.]+) ?([KMGT]iB|B|bytes)"
_REPORTED_SIZES = {"bytes": 1.0, **{name.lower(): by for name, by in SIZES.items()}}
_SETTING_UNITS: dict[str, tuple[float, str]] = {
    **{name: (by, "") for name, by in DECIMAL.items()},
    **{name: (by, "s") for name, by in TIMES.items()},
    **{name: (by, "B") for name, by in SIZES.items()},
    "/s": (1, "1/s"),
    "%": (0.01, "ratio"),
    "W": (1, "W"),
}
_PERIODS = {"h": "hours", "d": "days", "w": "weeks"}


class Amount(NamedTuple):
    """A number in its SI unit; `counted` is what a rate counts."""

    value: float
    counted: str = ""


def amount(text: str, unit: str) -> Amount | None:
    """Return `text` as an amount of `unit` ("s", "B", "1/s", "ratio" or "" for a count), or None.

    A count may stand alone; all else has its unit written out, in upper and lower case as defined:
    1 GB is 10⁹ bytes, 1 GiB 2³⁰. None above `LARGEST` as well.
    """
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return None
    number, written = float(match[1] + (match[2] or "")), match[3]
    parsed = _rate(number, written) if unit == "1/s" else _scaled(number, written, unit)
    return None if parsed is None or parsed.value > LARGEST else parsed


def _scaled(number: float, written: str, unit: str) -> Amount | None:
    scale = _SCALES[unit].get(written)
    if scale is None:
        return None
    # By its inverse, since 20 × 10⁻³ is not the number nearest to 0.02.
    return Amount(number / round(1 / scale) if scale < 1 else number * scale)


def _rate(number: float, written: str) -> Amount | None:
    counted, _, per = written.partition("/")
    if per.strip() != "s":
        return None
    counted = counted.strip()
    for prefix, scale in DECIMAL.items():
        quantity = RATES.get(counted.removeprefix(prefix).strip())
        if quantity is not None and counted.startswith(prefix):
            return Amount(number * scale, quantity)
    return None


def meant(text: str, unit: str) -> str | None:
    """Return the amount that was probably meant: another case, or the unit that is missing."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return None
    number, written = text[: match.start(3)].strip(), match[3]
    if not written:
        usual = {"s": "ms", "B": "MB", "1/s": "samples/s", "ratio": "%"}.get(unit)
        return number + usual if usual and amount(number + usual, unit) else None
    if unit == "1/s":
        word = written.partition("/")[0].strip().lower()
        return f"{number}{word}/s" if amount(f"{number}{word}/s", unit) else None
    scales = _SCALES[unit]
    candidates = [
        number + unit_name for unit_name in scales if unit_name.lower() == written.lower()
    ]
    return next((near for near in candidates if amount(near, unit)), None)


def fraction(text: str) -> float | None:
    """Return a percentage as a fraction, "3%" as 0.03; infinite beyond what a float holds."""
    match = _SHARE.fullmatch(text)
    return None if match is None else float(match[1]) / 100


def reported_size(message: str, before: str = "", after: str = "") -> int | None:
    """Return the bytes that a message of torch's gives between two texts, if it does."""
    match = re.search(re.escape(before) + _REPORTED + re.escape(after), message, re.IGNORECASE)
    return None if match is None else int(float(match[1]) * _REPORTED_SIZES[match[2].lower()])


def setting(text: object) -> tuple[float, str]:
    """Return the amount in SI and the unit of `records/figures.py`; "" for a plain number.

    Raises InputError `quantity`.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        if not abs(text) <= LARGEST:  # TOML has infinities, and what is no number
            raise _unfit(text, "an amount that anything has")
        return float(text), ""
    number, unit = _parts(text)
    # 1000samples/s: what is counted is the figure's business.
    unit = "/s" if unit.endswith("/s") else unit
    if unit not in _SETTING_UNITS:
        raise _unfit(text, "a number with a unit such as ms, s, MB, GiB, /s or %")
    factor, si_unit = _SETTING_UNITS[unit]
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
    match = _SETTING.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise _unfit(text, "a number with its unit")
    return float(match[1]), match[2] or ""


def _unfit(text: object, description: str) -> InputError:
    return InputError(
        f"'{text}' is not {description}.", id="quantity", remedy="Write it as 12ms or 2GB."
    )
