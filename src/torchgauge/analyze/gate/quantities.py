"""Parse amounts with a unit to SI: "100ms", "2GiB", "4GFLOP", "1000samples/s"."""

from __future__ import annotations

import re
from typing import NamedTuple

DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
TIMES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "μs": 1e-6, "us": 1e-6, "ns": 1e-9}
SIZES = {"B": 1.0, **{f"{prefix}B": scale for prefix, scale in (DECIMAL | BINARY).items()}}
COUNTS = {
    f"{prefix}{operation}": scale
    for prefix, scale in DECIMAL.items()
    for operation in ("", "FLOP", "FLOPs", "MAC", "MACs")
}
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
EXAMPLES = {"s": "100ms", "B": "2GB", "": "25M", "1/s": "1000samples/s"}
# The largest amount accepted, so that what is computed from one stays finite.
LARGEST = 1e30
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*(.*?)\s*", re.ASCII | re.DOTALL)


class Amount(NamedTuple):
    """A number in its SI unit; `counted` is what a rate counts."""

    value: float
    counted: str = ""


def amount(text: str, unit: str) -> Amount | None:
    """Return `text` as an amount of `unit` ("s", "B", "1/s" or "" for a count), or None.

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
    scale = {"s": TIMES, "B": SIZES, "": COUNTS}[unit].get(written)
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
        usual = {"s": "ms", "B": "MB", "1/s": "samples/s"}.get(unit)
        return number + usual if usual and amount(number + usual, unit) else None
    if unit == "1/s":
        word = written.partition("/")[0].strip().lower()
        return f"{number}{word}/s" if amount(f"{number}{word}/s", unit) else None
    scales = {"s": TIMES, "B": SIZES, "": COUNTS}[unit]
    candidates = [
        number + unit_name for unit_name in scales if unit_name.lower() == written.lower()
    ]
    return next((near for near in candidates if amount(near, unit)), None)
