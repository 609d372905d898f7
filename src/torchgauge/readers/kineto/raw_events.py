"""The events of a trace as they stand in its file, to the byte, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from torchgauge.readers.kineto.chunks import Chunks
from torchgauge.readers.kineto.decoding import ABSENT_TEXT
from torchgauge.readers.unpacking import open_trace, trace_text
from torchgauge.records.trace.events import ranks_said

_CHUNK = 1 << 20


class Head(msgspec.Struct, gc=False):
    """The fields that tell events apart."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = ABSENT_TEXT
    id: int | str = ""


class Batch(NamedTuple):
    """Some events one after the other: their heads and their texts."""

    heads: list[Head]
    texts: list[msgspec.Raw]


class _Around(msgspec.Struct):
    """The keys before or after the list of events, and the events decoded with them."""

    keys: dict[str, msgspec.Raw]
    events: list[msgspec.Raw]


_EVENTS, _JOB = "traceEvents", "distributedInfo"
_decode_texts = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_heads = msgspec.json.Decoder(list[Head]).decode
_decode_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Chunks(Chunks):
    """Chunks that leave the events as they are."""

    headers: list[Any]

    def _decode(self, text: bytes) -> list[Any]:
        return _decode_texts(text)

    def _decode_header(self, text: bytes) -> Any:
        keys = _decode_keys(text)
        return _Around(keys, _decode_texts(keys.pop(_EVENTS, b"")))


class RawEvents:
    """Iterates over batches of events; `before` and `after` are the text around them.

    `before` is complete with the first batch, `after` with the last. Raises what reading the
    trace raises (`kineto.read_events`), and takes no damaged ones.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._headers: list[_Around] = []

    def __iter__(self) -> Iterator[Batch]:
        with open_trace(self._path) as file:
            chunks = _Chunks(
                trace_text(file, str(self._path), _CHUNK), str(self._path), partial=False
            )
            self._headers = chunks.headers
            for texts in chunks:
                raw_texts: list[Any] = texts
                yield Batch(_decode_heads(b"[%b]" % b",".join(raw_texts)), raw_texts)

    @property
    def ranks(self) -> tuple[int | None, int | None]:
        """The rank of the process and the number of all, where what was read so far says them."""
        job = next((header.keys[_JOB] for header in self._headers if _JOB in header.keys), b"null")
        try:
            return ranks_said(msgspec.json.decode(job, type=dict[str, Any] | None))
        except (ValueError, RecursionError):
            return None, None

    @property
    def before(self) -> bytes:
        """The text up to the first event."""
        if not self._headers:
            return b"["  # no object, but a list of events alone
        return (
            b"{" + b"".join(pair + b"," for pair in _pairs(self._headers[0])) + b'"traceEvents":['
        )

    @property
    def after(self) -> bytes:
        """The text from the last event on."""
        if not self._headers:
            return b"]\n"
        return b"]" + b"".join(b"," + pair for pair in _pairs(*self._headers[1:])) + b"}\n"


def ranks_before(path: Path) -> tuple[int | None, int | None]:
    """Return rank and number of ranks, as Kineto writes them before the events.

    Raises what reading it raises.
    """
    raw = RawEvents(path)
    next(iter(raw))
    return raw.ranks


def _pairs(*headers: _Around) -> Iterator[bytes]:
    for header in headers:
        for key, text in header.keys.items():
            yield msgspec.json.encode(key) + b":" + text
