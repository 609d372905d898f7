"""How an answer's body is split: into server-sent events, into lines, or not at all."""

from __future__ import annotations

LONGEST_EVENT = 1 << 24
"""Bytes of the longest event; a longer one is refused."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLongError(ValueError):
    """An event has no end within `LONGEST_EVENT` bytes."""


class WholeBody:
    """Keeps a body until it has ended.

    Bytes are split by those that do, never text, so that a character in two pieces is whole again.
    """

    def __init__(self) -> None:
        self._line = bytearray()  # the last one, which has no end yet
        self._size = 0  # of what else has none

    def feed(self, data: bytes) -> list[bytes]:
        """Return what ends in `data`. Raises EventTooLongError."""
        self._line += data
        self._check_size()
        return []

    def end(self) -> list[bytes]:
        """Return what the body's end completes."""
        return [bytes(self._line)]

    def _check_size(self) -> None:
        if self._size + len(self._line) > LONGEST_EVENT:
            raise EventTooLongError(f"An event has no end within {LONGEST_EVENT:,} bytes.")


class Lines(WholeBody):
    """Splits a body into its lines (NDJSON), each of which a CR, an LF or both end."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return each line that ends in `data`. Raises EventTooLongError."""
        held_back = self._line.endswith(b"\r")
        super().feed(data)
        if self._begun and not held_back and b"\n" not in data and b"\r" not in data:
            return []  # a long line in many pieces is not searched again for each
        return self._split(bytes(self._line))

    def end(self) -> list[bytes]:
        """Return the last line, whose end is the body's."""
        return [bytes(self._line).removesuffix(b"\r")]

    def _split(self, data: bytes) -> list[bytes]:
        if not self._begun:
            if len(data) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(data):
                return []
            data = data.removeprefix(_BYTE_ORDER_MARK)
            self._begun = True
        held_back = b""
        if b"\r" in data:
            if data.endswith(b"\r"):  # perhaps the first half of \r\n
                data, held_back = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, last = data.split(b"\n")
        self._line = bytearray(last + held_back)
        return lines


class EventStream(Lines):
    """Splits a stream into the data of its events."""

    def __init__(self) -> None:
        super().__init__()
        self._data: list[bytes] = []  # of the event that has no end yet

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of each event that ends in `data`. Raises EventTooLongError."""
        events = self._events(super().feed(data))
        self._check_size()
        return events

    def end(self) -> list[bytes]:
        """Return the event that the stream's end completes, though its blank line is missing."""
        return self._events([*super().end(), b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                value = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(value)
                self._size += len(line) + 1
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
                self._size = 0
        return events
