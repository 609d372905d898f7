"""Columns of whole numbers as bytes: LEB128, seven bits to a byte, the lowest first."""

from __future__ import annotations

from typing import cast

import numpy as np

from torchgauge.records.trace.events import Integers

_BITS = 7


def encoded(values: Integers) -> bytes:
    """Return the numbers, none negative, as bytes."""
    numbers = values.astype(np.uint64)
    limits = np.array([1 << (_BITS * count) for count in range(1, 10)], np.uint64)
    length = np.searchsorted(limits, numbers, side="right") + 1
    position = np.cumsum(length) - length
    data = np.zeros(int(length.sum()), np.uint8)
    for number in range(int(length.max(initial=0))):
        longer = np.flatnonzero(length > number)
        septet = (numbers[longer] >> np.uint64(_BITS * number)) & np.uint64(0x7F)
        more = (length[longer] > number + 1).astype(np.uint64) << np.uint64(_BITS)
        data[position[longer] + number] = septet | more
    return data.tobytes()


def decoded(data: bytes) -> Integers:
    """Return the numbers of these bytes."""
    septets = np.frombuffer(data, np.uint8)
    if not len(septets):
        return np.zeros(0, np.int64)
    last = np.flatnonzero(septets < 1 << _BITS)
    first = np.concatenate([[0], last[:-1] + 1])
    length = last - first + 1
    number = np.repeat(np.arange(len(last)), length)
    shift = (np.arange(int(length.sum())) - first[number]).astype(np.uint64) * np.uint64(_BITS)
    parts = (septets[: len(shift)] & 0x7F).astype(np.uint64) << shift
    return np.add.reduceat(parts, first).astype(np.int64)


def zigzag(values: Integers) -> Integers:
    """Return signed numbers as ones that are not negative: 0, −1, 1, −2, … become 0, 1, 2, 3, …"""
    signed = values.astype(np.int64)
    return cast("Integers", (signed << 1) ^ (signed >> 63))


def unzigzag(values: Integers) -> Integers:
    """Return the signed numbers that `zigzag` was given."""
    return cast("Integers", (values >> 1) ^ -(values & 1))
