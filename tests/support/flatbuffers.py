"""Writes FlatBuffers by the numbers of their fields, without a schema, to test their readers."""

from __future__ import annotations

import struct
from typing import Any

Fields = dict[int, Any]


class Scalar:
    """A number in one of `struct`'s formats."""

    def __init__(self, form: str, value: float) -> None:
        self.bytes = struct.pack(f"<{form}", value)


class Vector:
    """A list of numbers in one of `struct`'s formats."""

    def __init__(self, form: str, *values: float) -> None:
        self.bytes = struct.pack("<I", len(values)) + struct.pack(f"<{len(values)}{form}", *values)


def flatbuffer(fields: Fields, identifier: bytes, *, sized: bool = False) -> bytes:
    """Return a file whose root has these fields: Scalar, Vector, str, a table, a list of tables.

    A table that is in a list several times, as the same object, is written once.
    """
    data = bytearray(8)
    data[4:8] = identifier
    root = _table(data, fields)
    data[:4] = struct.pack("<I", root)
    return struct.pack("<I", len(data)) + bytes(data) if sized else bytes(data)


def _table(data: bytearray, fields: Fields) -> int:
    """Append a table, then what it refers to, and return where the table is."""
    names = len(data)
    count = max(fields, default=-1) + 1
    sizes = {n: len(v.bytes) if isinstance(v, Scalar) else 4 for n, v in fields.items()}
    data += struct.pack("<HH", 4 + 2 * count, 4 + sum(sizes.values()))
    offset = 4
    for number in range(count):
        data += struct.pack("<H", offset if number in fields else 0)
        offset += sizes.get(number, 0)
    table = len(data)
    data += struct.pack("<i", table - names)
    places = {}
    for number in sorted(fields):
        places[number] = len(data)
        value = fields[number]
        data += value.bytes if isinstance(value, Scalar) else bytes(4)
    for number, place in places.items():
        if not isinstance(fields[number], Scalar):
            target = _target(data, fields[number])
            data[place : place + 4] = struct.pack("<I", target - place)
    return table


def _target(data: bytearray, value: Any) -> int:
    if isinstance(value, dict):
        return _table(data, value)
    start = len(data)
    if isinstance(value, str):
        data += struct.pack("<I", len(value.encode())) + value.encode() + b"\0"
    elif isinstance(value, Vector):
        data += value.bytes
    else:
        data += struct.pack("<I", len(value)) + bytes(4 * len(value))
        written: dict[int, int] = {}
        for number, table in enumerate(value):
            place = start + 4 + 4 * number
            if id(table) not in written:
                written[id(table)] = _table(data, table)
            data[place : place + 4] = struct.pack("<I", written[id(table)] - place)
    return start
