"""The text of a trace, decoded in chunks: `traceEvents` is cut between events as it is read.

A chunk ends where `}` `,` `{ "key" :` follow one another. No valid string holds that: its quotes
are escaped. A list of objects inside an event may; then the chunk does not decode, because
brackets are open, and the place is sought by counting them.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator

import msgspec

from torchgauge.errors import InputError
from torchgauge.readers.kineto.damage import Damage, corrected
from torchgauge.readers.kineto.decoding import (
    UNDECODABLE,
    Event,
    Header,
    decode_events,
    decode_header,
    truncated,
)
from torchgauge.readers.tar_archive import PackingError
from torchgauge.reading import EVENT, too_large

_CUT = re.compile(rb'\}\s*(,)\s*\{\s*"\w[^"\\]{0,60}"\s*:')
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_RECORD = re.compile(rb'\s*\{\s*"schema"\s*:\s*"torchgauge\.')
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_BYTE = re.compile(r" \(byte (\d+)\)")
# A string without an end takes all that follows.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[][{},]', re.DOTALL)
_BOM = b"\xef\xbb\xbf"


class Chunks:
    """Iterates over lists of events; `headers` and `damage` are complete after the last.

    Events that are not JSON are corrected or left out, and `damage` counts them. Raises InputErrors
    `trace-empty`, `trace-not-json`, `trace-no-events`, `trace-too-large`, `trace-malformed` where
    no event can be read, and, unless `partial`, `trace-truncated` and `trace-packing` of a file
    that is cut off. Offsets are those of the unpacked text.
    """

    def __init__(self, texts: Iterator[bytes], name: str, *, partial: bool) -> None:
        self.headers: list[Header] = []
        self.damage = Damage()
        self._texts = texts
        self._name = name
        self._partial = partial
        self._buffer = b""
        self._limit = EVENT.limit_for(0)
        self._offset = 0  # of the buffer in the text
        self._opening = b""  # what makes the rest of the text valid again

    def _decode(self, text: bytes) -> list[Event]:
        return decode_events(text)

    def _decode_header(self, text: bytes) -> Header:
        return decode_header(text)

    def __iter__(self) -> Iterator[list[Event]]:
        self._open()
        empty = True
        while True:
            # The length without a place to cut; the next try is at twice that.
            uncut_length = 0
            if cut := self._cut():
                events, end = cut
                self._drop(end)
                empty = empty and not events
                yield events
            else:
                uncut_length = len(self._buffer)
            if not self._read(2 * uncut_length):
                break
        yield (events := self._last_events())
        if empty and not events and self.damage.lost and not self._partial:
            raise self._error("trace-malformed", self.damage.first)

    def _read(self, min_size: int = 0) -> bool:
        """Read the next text, and more until the buffer has `min_size` bytes; False at the end."""
        texts, size = [self._buffer], len(self._buffer)
        while len(texts) == 1 or size < min_size:
            text = self._next_text()
            if not text:
                break
            texts.append(text)
            size += len(text)
            if size > self._limit:
                raise too_large(self._name, "One event of it", self._limit, "trace-too-large")
        self._buffer = b"".join(texts)
        return len(texts) > 1

    def _next_text(self) -> bytes:
        try:
            return next(self._texts, b"")
        except PackingError as error:
            if not self._partial:
                raise self._error("trace-packing", str(error)) from error
            self.damage.cut_off = True
            self.damage.note(str(error))
            return b""

    def _drop(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._offset += count

    def _open(self) -> None:
        """Read up to the first event."""
        while self._read(2 * len(self._buffer)):
            if self._offset == 0 and self._buffer.startswith(_BOM):
                self._drop(len(_BOM))
            self._drop(len(self._buffer) - len(self._buffer.lstrip()))
            first = self._buffer[:1]
            if first == b"[":
                self._opening = b"["
                return self._drop(1)
            if first not in (b"", b"{") and not _BOM.startswith(self._buffer):
                break
            if header := self._header():
                self._opening = b'{"traceEvents":['
                return self._drop(header)
        raise self._no_trace()

    def _header(self) -> int | None:
        """Return where the list of events begins, and keep what stands before it."""
        end = _list_of_events(self._buffer)
        if end is None:
            return None
        text = self._buffer[:end] + b"]}"
        for readable in (text, corrected(text)):
            with contextlib.suppress(*UNDECODABLE):
                self.headers.append(self._decode_header(readable))
                return end
        return None

    def _no_trace(self) -> InputError:
        if self.damage.cut_off:
            return self._error("trace-packing", self.damage.first)
        if not self._buffer.strip():
            return self._error("trace-empty", "It holds nothing.")
        if _PICKLE.match(self._buffer):
            return InputError(
                f"{self._name} is a pickle, not a trace.",
                id="trace-not-json",
                cause="Memory snapshots are pickles.",
                remedy="Read it by tg.read_snapshot, or "
                f"`torchgauge snapshot {shlex.quote(self._name)}`.",
            )
        try:
            msgspec.json.decode(self._buffer, type=msgspec.Raw)
        except UNDECODABLE as error:
            has_list = _ARRAY.search(self._buffer)
            return self._error("trace-malformed" if has_list else "trace-not-json", str(error))
        if _RECORD.match(self._buffer):
            return InputError(
                f"{self._name} is a record of torchgauge's, not a recorded trace.",
                id="trace-no-events",
                remedy=f"Show it: torchgauge report {shlex.quote(self._name)}",
            )
        return self._error("trace-no-events", "It is JSON without a list named traceEvents.")

    def _cut(self) -> tuple[list[Event], int] | None:
        """Return the events up to a late place to cut, and where the next begins."""
        for find in (_last_cut, _last_cut_outside):
            position = find(self._buffer)
            if position is None:
                return None
            try:
                return self._decode(
                    b"".join((b"[", memoryview(self._buffer)[:position], b"]"))
                ), position + 1
            except UNDECODABLE as error:
                if truncated(error):
                    continue  # brackets are open: that was no place between two events
                if "trailing characters" in str(error):
                    return None  # the array ends here
                return self._salvaged(_event_texts(self._buffer[:position])), position + 1
        return None

    def _last_events(self) -> list[Event]:
        """Return the events before the end of the array, and keep what follows it."""
        try:
            return self._ended(self._buffer)
        except UNDECODABLE:
            *texts, (start, last_text) = _event_texts(self._buffer)
            events = self._salvaged(texts)
            return events + self._salvaged_end(start, last_text)

    def _ended(self, text: bytes) -> list[Event]:
        if self._opening == b"[":
            return self._decode(b"[" + text)
        header = self._decode_header(self._opening + text)
        events, header.events = header.events, []
        self.headers.append(header)
        return events

    def _salvaged(self, texts: list[tuple[int, bytes]]) -> list[Event]:
        """Return the events that can be read, each for itself."""
        events: list[Event] = []
        for start, text in texts:
            try:
                events += self._decode(b"[" + text + b"]")
            except UNDECODABLE as error:
                self._note(start, error, 1)
                with contextlib.suppress(*UNDECODABLE):
                    events += self._counted(self._decode(b"[" + corrected(text) + b"]"))
        return events

    def _salvaged_end(self, start: int, text: bytes) -> list[Event]:
        """Return the last event, and keep what follows the array."""
        try:
            return self._ended(text)
        except UNDECODABLE as error:
            # What is cut inside a number or a word is malformed.
            if truncated(error) or not text.rstrip().endswith((b"]", b"}")):
                return self._cut_off(text, error)
            self._note(start, error, len(self._opening))
        try:
            return self._counted(self._ended(corrected(text)))
        except UNDECODABLE as error:
            return self._cut_off(b"", error) if truncated(error) else []

    def _cut_off(self, text: bytes, error: Exception) -> list[Event]:
        """Return the last event of a file that is cut off after it."""
        cause = f"It is cut off at byte {self._offset + len(self._buffer):,}."
        if not self._partial:
            raise self._error("trace-truncated", cause) from error
        self.damage.cut_off = True
        self.damage.note(cause)
        with contextlib.suppress(*UNDECODABLE):
            return self._decode(b"[" + text + b"]")
        return []

    def _counted(self, events: list[Event]) -> list[Event]:
        """Return corrected events but those without a time, and count them as corrected."""
        timed = [e for e in events if b"null" not in (bytes(e.ts), bytes(e.dur))]
        self.damage.lost -= len(timed)
        self.damage.corrected += len(timed)
        return timed

    def _note(self, start: int, error: Exception, before: int) -> None:
        """Count an event as lost, whose text begins at `start` after `before` bytes of ours."""
        match = _BYTE.search(str(error))
        place = self._offset + start + (int(match.group(1)) - before if match else 0)
        self.damage.lost += 1
        self.damage.note(f"{'At' if match else 'After'} byte {place:,}: {_message(error)}.")

    def _error(self, id: str, cause: str) -> InputError:
        remedy = "Give what torch.profiler's export_chrome_trace wrote."
        if id == "trace-malformed":
            remedy = "Copy or record it again."
        if id in ("trace-truncated", "trace-packing"):
            remedy = "Copy or record it again, or read what can be read with --partial "
            remedy += "(partial=True)."
        return InputError(
            f"{self._name} cannot be read as a Kineto trace.", id=id, cause=cause, remedy=remedy
        )


def _event_texts(text: bytes) -> list[tuple[int, bytes]]:
    """Return what stands between two places to cut, each with where it begins."""
    commas = [match.start(1) for match in _CUT.finditer(text)]
    return [
        (start, text[start:end])
        for start, end in zip([0, *(n + 1 for n in commas)], [*commas, len(text)], strict=True)
    ]


def _list_of_events(text: bytes) -> int | None:
    """Return where the list begins that the outermost object has as `traceEvents`.

    The same words may stand inside something else, a hundred thousand times: brackets are counted.
    """
    if not (first := _ARRAY.search(text)):
        return None
    depth = 0
    for token in _TOKEN.finditer(text):
        begin, mark = token.start(), token[0][0]
        if begin >= first.start() and depth == 1 and (array := _ARRAY.match(text, begin)):
            return array.end()
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
    return None


def _last_cut(text: bytes) -> int | None:
    """Return the comma of the last place that may be between two events."""
    brace = len(text)
    while (brace := text.rfind(b"}", 0, brace)) >= 0:
        if cut := _CUT.match(text, brace):
            return cut.start(1)
    return None


def _last_cut_outside(text: bytes) -> int | None:
    """Return the comma of the last place outside all brackets; ten times slower, and sure."""
    depth, position = 0, None
    for token in _TOKEN.finditer(text):
        first = token[0][0]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
        elif first in b"," and depth == 0:
            position = token.start()
    return position


def _message(error: Exception) -> str:
    """Return the message without its byte, which counts from the start of a chunk."""
    return _BYTE.sub("", str(error))
