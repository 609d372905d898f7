"""Translates what XLA records (`*.xplane.pb` of JAX and TensorFlow) to JAX's trace in JSON.

The file is a message of protocol buffers, an XSpace: planes (a host, a device) of lines (a thread,
a stream) of events, whose names and statistics are in tables of the plane. It is read by the
numbers of the fields in xplane.proto, so that no library is needed.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

_END = (".pb", ".pb.gz")
_PLANES = b"\x0a"  # how the first field of an XSpace begins
# Fields by number: of an XSpace, an XPlane, an XLine, an XEvent, an XStat, and of the tables.
_SPACE_PLANE = 1
_PLANE_NAME, _PLANE_LINE, _PLANE_EVENT_NAMES, _PLANE_STAT_NAMES = 2, 3, 4, 5
_LINE_ID, _LINE_NAME, _LINE_TIME, _LINE_EVENT, _LINE_TITLE = 1, 2, 3, 4, 11
_EVENT_NAME, _EVENT_OFFSET, _EVENT_DURATION, _EVENT_STAT = 1, 2, 3, 4
_STAT_NAME, _STAT_DOUBLE, _STAT_SIGNED, _STAT_REFERENCE = 1, 2, 4, 7
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_METADATA_NAME, _METADATA_TITLE = 2, 4
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_LONGEST = 10  # bytes of a varint
_MAX_LINES = 1 << 20

Fields = dict[int, list[Any]]


def is_xplane(name: str, first: bytes) -> bool:
    """Return whether a file of this name with these first bytes is an XSpace."""
    return name.endswith(_END) and first.startswith(_PLANES)


def as_trace(data: bytes) -> bytes:
    """Return the file as the JSON that JAX writes; raises ValueError where it is damaged."""
    events: list[dict[str, Any]] = []
    for number, plane in enumerate(_fields(data)[_SPACE_PLANE], 1):
        events.extend(_plane(number, _fields(plane)))
    return msgspec.json.encode({"displayTimeUnit": "ns", "traceEvents": [*events, {}]})


def _plane(number: int, plane: Fields) -> Iterator[dict[str, Any]]:
    name = _text(plane, _PLANE_NAME)
    if not name.startswith(("/host:", "/device:")):
        return  # tables of the task, and what other tools derived
    names, stats = _table(plane[_PLANE_EVENT_NAMES]), _table(plane[_PLANE_STAT_NAMES])
    yield _named("process_name", number, 0, name)
    for index, encoded in enumerate(plane[_PLANE_LINE][:_MAX_LINES]):
        line = _fields(encoded)
        thread = _number(line, _LINE_ID) or index
        yield _named("thread_name", number, thread, _text(line, _LINE_TITLE, _LINE_NAME))
        begin = _number(line, _LINE_TIME)
        for event in line[_LINE_EVENT]:
            yield _event(number, thread, begin, _fields(event), names, stats)


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _event(
    process: int,
    thread: int,
    line_begin: int,
    event: Fields,
    names: dict[int, str],
    stats: dict[int, str],
) -> dict[str, Any]:
    begin = line_begin * 1000 + _number(event, _EVENT_OFFSET)  # in ps
    arguments = dict(_statistic(_fields(stat), stats) for stat in event[_EVENT_STAT])
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": names.get(_number(event, _EVENT_NAME), ""),
        "ts": _microseconds(begin),
        "dur": _microseconds(_number(event, _EVENT_DURATION)),
        "args": {name: value for name, value in arguments.items() if name},
    }


def _microseconds(picoseconds: int) -> msgspec.Raw:
    return msgspec.Raw(b"%d.%03d" % divmod((max(picoseconds, 0) + 500) // 1000, 1000))


def _statistic(stat: Fields, names: dict[int, str]) -> tuple[str, str]:
    """Return name and value of a statistic, as text, as JAX's JSON has them."""
    name = names.get(_number(stat, _STAT_NAME), "")
    for field, values in stat.items():
        if field == _STAT_NAME or not values:
            continue
        value = values[-1]
        if field == _STAT_REFERENCE:
            return name, names.get(value, "")
        if field == _STAT_DOUBLE:
            return name, f"{struct.unpack('<d', value)[0]:g}"
        if field == _STAT_SIGNED:
            value -= (value >> 63) << 64
        return name, value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return name, ""


def _table(entries: list[bytes]) -> dict[int, str]:
    """Return the names by their numbers."""
    table: dict[int, str] = {}
    for entry in map(_fields, entries):
        values = entry[_ENTRY_VALUE]
        metadata = _fields(values[-1]) if values and isinstance(values[-1], bytes) else _fields(b"")
        table[_number(entry, _ENTRY_KEY)] = _text(metadata, _METADATA_TITLE, _METADATA_NAME)
    return table


def _text(fields: Fields, *numbers: int) -> str:
    """Return the first of these fields that is a text and not empty."""
    for number in numbers:
        value = fields[number][-1] if fields[number] else b""
        if isinstance(value, bytes) and value:
            return value.decode(errors="replace")
    return ""


def _number(fields: Fields, number: int) -> int:
    value = fields[number][-1] if fields[number] else 0
    return value if isinstance(value, int) else 0


def _fields(data: Any) -> Fields:
    """Return the values of a message by the numbers of their fields; raises ValueError."""
    if not isinstance(data, bytes):
        raise ValueError("a message was expected")  # noqa: TRY004 - the file is wrong, not the call
    fields: Fields = defaultdict(list)
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            fields[key >> 3].append(value)
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_EIGHT, _FOUR):
            size = 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if position + size > len(data):
            raise ValueError("it is cut off")
        fields[key >> 3].append(data[position : position + size])
        position += size
    return fields


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, and where the next begins."""
    value = 0
    for shift in range(_LONGEST):
        if position + shift >= len(data):
            raise ValueError("it is cut off")
        byte = data[position + shift]
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value & (2**64 - 1), position + shift + 1
    raise ValueError("a number is too long")
