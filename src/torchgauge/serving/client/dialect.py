"""What an API's requests look like, and what its answers say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Outcome = Literal["done", "stream", "protocol"]
"""What a whole answer is: an answer, a stream that broke or named an error, or neither."""


class AnswerReader(Protocol):
    """Reads the answers of one connection, one after the other.

    Attributes:
        first: Moment of the first content; NaN before.
        reasoning: Moment of the first reasoning token; NaN before.
        stamps: Moments of the events with content.
        tokens_in: Tokens of the prompt; −1 where the server did not say.
        tokens_out: Tokens of the answer, likewise.
    """

    first: float
    reasoning: float
    stamps: list[float]
    tokens_in: int
    tokens_out: int

    def start(self, *, streamed: bool) -> None:
        """Begin an answer, which is a stream of events or one body."""

    def feed(self, data: bytes, now: float) -> None:
        """Read a piece of the body that came at `now`. Raises EventTooLongError."""

    def finish(self, now: float) -> Outcome:
        """Return what the answer was, now that its body has ended."""


@dataclass(frozen=True)
class Prompt:
    """What a language model is asked.

    Attributes:
        text: The prompt; empty where `messages` are given.
        messages: A conversation, as chat APIs take it.
        tokens: The most tokens to answer with; None leaves that to the server.
    """

    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    tokens: int | None = None


@dataclass(frozen=True)
class Dialect:
    """An API.

    Attributes:
        name: As in `--api`.
        path: Where its requests go if the address has no path.
        reader: Makes what reads answers; None where they say nothing but that they came.
        body: Makes the body that asks a model (by name) a prompt; None where bodies are the user's.
        model_path: Where the server lists its models.
    """

    name: str
    path: str = "/"
    reader: Callable[[], AnswerReader] | None = None
    body: Callable[[Prompt, str], bytes] | None = None
    model_path: str = ""


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
