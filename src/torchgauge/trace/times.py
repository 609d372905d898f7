"""Timestamps as a trace writes them, decimal microseconds, to exact integer nanoseconds.

A float64 cannot hold them: microseconds since 1970 are 1.7·10¹⁵, where it has steps of 0.25.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchgauge.model.events import Integers
from torchgauge.trace.columns import Parts

_ZERO, _DOT = ord("0"), ord(".")
# With three after the dot 19 digits, which overflow into negative numbers and no further.
_LONGEST = 16
_LIMIT = 2**63 - 1


def nanoseconds(texts: Sequence[msgspec.Raw]) -> Integers:
    """Return decimal microseconds in ns, rounded half up; an absent one is 0.

    Raises ValueError for what is no number, or no time between 1678 and 2262.
    """
    if not texts:
        return np.zeros(0, dtype=np.int64)
    padded = np.array([bytes(text) for text in texts])
    digits = padded.view(np.uint8).reshape(len(texts), -1)
    values, plain = _plain(digits)
    for i in np.flatnonzero(~plain).tolist():
        values[i] = _any(bytes(texts[i]))
    return values


def _plain(characters: NDArray[np.uint8]) -> tuple[Integers, NDArray[np.bool_]]:
    """Return ns of what is digits and at most one dot, and which those are."""
    count = len(characters)
    value = np.zeros(count, dtype=np.int64)
    # How many more digits count: after the dot three, for the nanoseconds.
    left = np.full(count, _LONGEST)
    dots = np.zeros(count, dtype=np.int64)
    plain = np.ones(count, dtype=np.bool_)
    for column in characters.T:
        digit = column - np.uint8(_ZERO)  # wraps around below "0"
        is_digit, is_dot = digit < 10, column == _DOT
        # Rounding, too long ones, signs and exponents are for the exact and slow way.
        plain &= (is_digit & (left > 0)) | is_dot | (column == 0)
        value = np.where(is_digit, value * 10 + digit, value)
        left = np.where(is_dot, 3, left - is_digit)
        dots += is_dot
    missing = np.where(dots == 0, 3, np.clip(left, 0, 3))
    value *= 10 ** missing.astype(np.int64)
    return value, plain & (dots <= 1) & (value >= 0)


def _any(text: bytes) -> int:
    try:
        exact = decimal.Decimal(text.decode()) * 1000
        value = int(exact.to_integral_value(decimal.ROUND_HALF_UP))
    except (ArithmeticError, UnicodeDecodeError) as error:
        raise ValueError(f"{text!r} is no time") from error
    if abs(value) > _LIMIT:
        raise ValueError(f"{text!r} µs is no time")
    return value


class Times(Parts):
    """A column of times in the making, in ns; `earliest` is the smallest so far."""

    def __init__(self) -> None:
        super().__init__(np.int64)
        self.earliest: int | None = None

    def add(self, texts: Sequence[msgspec.Raw]) -> None:
        """Append timestamps."""
        times = nanoseconds(texts)
        if len(times):
            first = int(times.min())
            self.earliest = first if self.earliest is None else min(first, self.earliest)
        self.append(times)

    def finish_from(self, origin: int) -> Integers:
        """Return them counted from the origin, in ns."""
        times = self.finish()
        times -= origin
        return times
