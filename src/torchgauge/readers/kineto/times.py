"""Timestamps as a trace writes them, decimal microseconds, to exact integer nanoseconds.

A float64 cannot hold them: microseconds since 1970 are 1.7·10¹⁵, where it has steps of 0.25.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Sequence

import msgspec
import numpy as np

from torchgauge.readers.columns import Parts
from torchgauge.records.trace.events import Integers

_ZERO, _NINE, _DOT, _COMMA = ord("0"), ord("9"), ord("."), ord(",")
_DIGITS = 19  # that an int64 holds, unless the first is a nine
_LIMIT = 2**63 - 1
_FARTHEST = 2**62  # from 1970, so that sums of two times are no more than an int64 holds
_is_usual = re.compile(rb"([0-9]{1,15}|[0-8][0-9]{15})(\.[0-9]{1,3})?").fullmatch


def nanoseconds(texts: Sequence[msgspec.Raw]) -> Integers:
    """Return decimal microseconds in ns, rounded half up; an absent one is 0.

    Raises ValueError for what is no number, or no time between 1678 and 2262.
    """
    if not texts:
        return np.zeros(0, dtype=np.int64)
    usual = _usual(b",".join(texts), len(texts))
    if usual is not None:
        return usual
    numerals = [bytes(text).strip(b'"') or b"0" for text in texts]  # torch_npu writes texts
    odd = [i for i, text in enumerate(numerals) if not _is_usual(text)]
    exact = [_exact_nanoseconds(numerals[i]) for i in odd]
    for i in odd:
        numerals[i] = b"0"
    values = _usual(b",".join(numerals), len(numerals))
    if values is None:
        raise ValueError(f"{numerals!r} are not times")
    values[odd] = exact
    return values


def _usual(joined: bytes, count: int) -> Integers | None:
    """Return ns where all are digits with at most three after a dot, as torch writes them."""
    characters = np.frombuffer(joined + b",", np.uint8)
    ends = np.flatnonzero(characters == _COMMA)
    dots = np.flatnonzero(characters == _DOT)
    digits = np.count_nonzero(characters - np.uint8(_ZERO) < 10)  # wraps around below "0"
    if digits + count + len(dots) != len(characters):
        return None
    owner = np.searchsorted(ends, dots)
    length = np.diff(ends, prepend=-1) - 1
    length[owner] -= 1
    after = np.zeros(count, dtype=np.int64)
    after[owner] = ends[owner] - dots - 1
    first = characters[np.append(0, ends[:-1] + 1)]
    scaled = length + 3 - after + (first == _NINE)
    if length.min() < 1 or after.max() > 3 or scaled.max() > _DIGITS:
        return None
    if np.diff(owner).min(initial=1) < 1:
        return None
    values = np.fromstring(joined.replace(b".", b""), np.int64, sep=",")
    return values * 10 ** (3 - after)


def _exact_nanoseconds(text: bytes) -> int:
    try:
        exact = decimal.Decimal(text.decode()) * 1000
        value = int(exact.to_integral_value(decimal.ROUND_HALF_UP))
    except (ArithmeticError, UnicodeDecodeError) as error:
        raise ValueError(f"{text!r} is not a time") from error
    if abs(value) > _LIMIT:
        raise ValueError(f"{text!r} µs is not a time")
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

    def finish_from(self, origin: int, lasting: float = 0) -> Integers:
        """Return them counted from the origin, in ns; what begins then lasts so long together.

        Raises ValueError where sums of them would be more than an int64 holds.
        """
        times = self.finish()
        last = int(times.max(initial=origin))
        if origin < -_FARTHEST or last + lasting > _FARTHEST:
            raise ValueError(
                f"times from {origin:.3e} to {last + lasting:.3e} ns are not plausible"
            )
        times -= origin
        return times
