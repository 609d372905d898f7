"""Server-sent events out of the pieces in which they arrive."""

from __future__ import annotations

LONGEST_EVENT = 1 << 24
"""Bytes of the longest event; a longer one is refused."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLongError(ValueError):
    """An event has no end within `LONGEST_EVENT` bytes."""


class EventStream:
    """Splits a stream of bytes into events, wherever it was cut: in lines and in characters.

    Bytes are split, never text, so that a character in two pieces is whole again in its event.
    """

    def __init__(self) -> None:
        self._begun = False
        self._line = bytearray()  # the last one, which has no end yet
        self._data: list[bytes] = []  # of the event that has no end yet
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of each event that ends in `data`.

        Raises EventTooLongError.
        """
        held_back = self._line.endswith(b"\r")
        self._line += data
        if self._begun and not held_back and b"\n" not in data and b"\r" not in data:
            self._check_size()  # a long line in many pieces is not searched again for each
            return []
        return self._split(bytes(self._line))

    def end(self) -> list[bytes]:
        """Return the event that the stream's end completes, though its blank line is missing."""
        return self._events([bytes(self._line).removesuffix(b"\r"), b""])

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
        events = self._events(lines)
        self._check_size()
        return events

    def _check_size(self) -> None:
        if self._size + len(self._line) > LONGEST_EVENT:
            raise EventTooLongError(f"An event has no end within {LONGEST_EVENT:,} bytes.")

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
