"""Decodes the text of a trace to events and to the keys next to them.

Values that the types refuse are decoded more slowly, as far as they are understood.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchgauge.readers.kineto.arguments import Arguments, Integer, Uncategorised, tolerant

# Where events have categories, one of the first has.
_CATEGORY, _SOON = b'"cat"', 4096
ABSENT_TEXT = msgspec.Raw()
_FAR = 2**63


class Event(msgspec.Struct, gc=False):
    """One event as the file has it; times stay text, which a float would round."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Integer | str = 0
    tid: Integer | str = 0
    ts: msgspec.Raw = ABSENT_TEXT
    dur: msgspec.Raw = ABSENT_TEXT
    args: Arguments | None = None
    id: Integer | str = ""


class _Uncategorised(Event, gc=False):
    """An event of a trace without categories."""

    args: Uncategorised | None = None


class _Odd(Event, gc=False):
    """An event whose arguments stay text, for their type may refuse them; numbers are any."""

    pid: int | str = 0
    tid: int | str = 0
    id: int | str = ""
    args: msgspec.Raw = ABSENT_TEXT  # type: ignore[assignment]


class Header(msgspec.Struct, gc=False):
    """The keys beside the events, before or after them."""

    events: list[Event] = msgspec.field(name="traceEvents")
    schema_version: msgspec.Raw = msgspec.field(name="schemaVersion", default=ABSENT_TEXT)
    base_time: msgspec.Raw = msgspec.field(name="baseTimeNanoseconds", default=ABSENT_TEXT)
    display_time_unit: msgspec.Raw = msgspec.field(name="displayTimeUnit", default=ABSENT_TEXT)
    trace_name: msgspec.Raw = msgspec.field(name="traceName", default=ABSENT_TEXT)
    recorder: msgspec.Raw = ABSENT_TEXT
    devices: msgspec.Raw = msgspec.field(name="deviceProperties", default=ABSENT_TEXT)
    distributed: msgspec.Raw = msgspec.field(name="distributedInfo", default=ABSENT_TEXT)
    cuda_runtime: msgspec.Raw = msgspec.field(name="cuda_runtime_version", default=ABSENT_TEXT)
    cuda_driver: msgspec.Raw = msgspec.field(name="cuda_driver_version", default=ABSENT_TEXT)
    hip_runtime: msgspec.Raw = msgspec.field(name="hip_runtime_version", default=ABSENT_TEXT)
    hip_driver: msgspec.Raw = msgspec.field(name="hip_driver_version", default=ABSENT_TEXT)
    merged_ranks: msgspec.Raw = msgspec.field(name="mergedRanks", default=ABSENT_TEXT)


class _UncategorisedHeader(Header, gc=False):
    events: list[_Uncategorised] = msgspec.field(name="traceEvents")  # type: ignore[assignment]


class _OddHeader(Header, gc=False):
    events: list[_Odd] = msgspec.field(name="traceEvents")  # type: ignore[assignment]


_decode_usual = msgspec.json.Decoder(list[Event]).decode
_decode_uncategorised = msgspec.json.Decoder(list[_Uncategorised]).decode
_decode_odd = msgspec.json.Decoder(list[_Odd]).decode
_decode_usual_header = msgspec.json.Decoder(Header).decode
_decode_uncategorised_header = msgspec.json.Decoder(_UncategorisedHeader).decode
_decode_odd_header = msgspec.json.Decoder(_OddHeader).decode
# UnicodeDecodeError is a ValueError as msgspec's own are.
UNDECODABLE = (ValueError, RecursionError)


def decode_events(text: bytes) -> list[Event]:
    """Return the events of a JSON list; raises one of UNDECODABLE."""
    try:
        if _CATEGORY not in text[:_SOON]:
            return list(_decode_uncategorised(text))
        return _decode_usual(text)
    except UNDECODABLE as error:
        if truncated(error):
            raise
    return _tolerated(_decode_odd(text))


def decode_header(text: bytes) -> Header:
    """Return a JSON object with `traceEvents`; raises one of UNDECODABLE."""
    try:
        if _CATEGORY not in text[:_SOON]:
            return _decode_uncategorised_header(text)
        return _decode_usual_header(text)
    except UNDECODABLE as error:
        if truncated(error):
            raise
    header = _decode_odd_header(text)
    _tolerated(header.events)
    return header


def _tolerated(events: Sequence[_Odd]) -> list[Event]:
    for event in events:
        event.args = tolerant(bytes(event.args))  # type: ignore[assignment]
        event.pid, event.tid, event.id = map(_named, (event.pid, event.tid, event.id))
    return list(events)


def _named(number: int | str) -> int | str:
    """Return a number of more than eight bytes as text: many may be made to collide in a dict."""
    return number if isinstance(number, str) or -_FAR <= number < _FAR else str(number)


def truncated(error: Exception) -> bool:
    """Whether the text is JSON up to its end, and more was expected."""
    return isinstance(error, msgspec.DecodeError) and "truncated" in str(error)
