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
        ...

    def feed(self, data: bytes, now: float) -> None:
        """Read a piece of the body that came at `now`. Raises EventTooLongError."""
        ...

    def finish(self, now: float) -> Outcome:
        """Return what the answer was, now that its body has ended."""
        ...


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
