"""What an API's requests look like, and what its answers say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from torchgauge.serving.client.framing import EventStream, WholeBody

Outcome = Literal["done", "stream", "answer"]
"""What a whole answer is: one of the API, a stream that broke or named an error, or another."""
LONGEST_TEXT = 1 << 12
"""Bytes of a failure's body that are read: more than is kept, which ends in no half of a token."""
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_decode = msgspec.json.Decoder().decode


def _paths(*texts: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(text.split(".")) for text in texts)


class AnswerFields:
    """Where an API's answers say what: names and positions in lists, with dots between them.

    Args:
        contents: A piece with any of these has content; none: each piece is one.
        reasoning: Likewise, of a model's reasoning.
        other_fields: Further fields by which a piece is known to be the API's.
        end: What the last piece has; empty: an answer ends with its body.
        mute: What makes a content none, such as the mark of a special token.
        counts: Tokens of the prompt, of the answer, and of the reasoning in that.
    """

    def __init__(
        self,
        *contents: str,
        reasoning: tuple[str, ...] = (),
        other_fields: tuple[str, ...] = (),
        end: str = "",
        mute: str = "",
        counts: tuple[str, ...] = (),
    ) -> None:
        self.contents, self.reasoning = _paths(*contents), _paths(*reasoning)
        self.known_paths = self.contents + _paths(*other_fields)
        (self.end,), (self.mute,), self.counts = _paths(end), _paths(mute), _paths(*counts)
        self.counted = {path[0] for path in self.counts}

    @staticmethod
    def by_path(path: str) -> AnswerFields:
        """Return the fields of a stream with contents at a path: `data` may name an event's data.

        Without a path each piece is a content.
        """
        names = path.replace("[", ".").replace("]", "")
        return AnswerFields(*dict.fromkeys((names, names.removeprefix("data."))) if path else ())


class AnswerReader:
    """Reads the answers of one connection, one after the other.

    Args:
        fields: Where they say what.
        framing: What bodies are split by; None: events where the server says so, else the body
            is one piece.

    Attributes:
        first: Moment of the first content, of a body that came whole of its first byte; NaN before.
        reasoning: Moment of the first reasoning token; NaN before.
        stamps: Moments of the pieces with content.
        tokens_in: Tokens of the prompt; −1 where the server did not say.
        tokens_out: Tokens of the content, likewise: of an answer with reasoning, less its reasoning
            tokens, or unknown where the server does not count these.
        text: The begin of what the server sent in place of an answer.
    """

    def __init__(self, fields: AnswerFields, framing: type[EventStream | WholeBody] | None) -> None:
        self._fields, self._framing = fields, framing
        self.start(streamed=True)

    def start(self, *, streamed: bool) -> None:
        """Begin an answer, which is a stream of events or one body."""
        self._splitter = (self._framing or (EventStream if streamed else WholeBody))()
        self._is_whole = type(self._splitter) is WholeBody
        self._outcome: Outcome | None = None
        self._is_of_api = self._reasoned = False
        self._ended = self._is_whole or self._fields.end == ("",)
        self.text = b""
        self.first = self.reasoning = math.nan
        self.stamps: list[float] = []
        self.tokens_in = self.tokens_out = -1

    def feed(self, data: bytes, now: float) -> None:
        """Read a piece of the body that came at `now`. Raises EventTooLongError."""
        if not self._is_of_api and self._outcome is None:
            self.text = (self.text + data)[:LONGEST_TEXT]
        if self._is_whole and math.isnan(self.first):
            self.first = now
        for event in self._splitter.feed(data):
            self._read(event.strip(), now)

    def finish(self, now: float) -> Outcome:
        """Return what the answer was, now that its body has ended."""
        for event in self._splitter.end():
            self._read(event.strip(), now)
        if self._is_whole:  # its contents came together
            self.stamps, self.reasoning = [], math.nan
        if self._outcome is not None:
            return self._outcome
        if not self._is_of_api and (self.text.strip() or self._is_whole):
            return "answer"
        return "done" if self._ended else "stream"

    def _read(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self._ended = True
        elif data and not self._fields.contents:
            self._know()
            self._note_content(now)
        elif data:
            try:
                decoded = _decode(data)
            except _UNREADABLE:
                self._fail("answer", data)
                return
            if type(decoded) is not dict:
                return
            if decoded.get("error"):
                self._fail("stream", data)
            self._take(decoded, now)

    def _take(self, decoded: dict[str, Any], now: float) -> None:
        """Note what a piece says."""
        fields = self._fields
        has_content = _any(decoded, fields.contents)
        if has_content and fields.mute != ("",) and _value_at(decoded, fields.mute):
            has_content = False
        if has_content:
            self._note_content(now)
        if (self._is_whole or not has_content) and _any(decoded, fields.reasoning):
            self.reasoning = self.reasoning if self._reasoned else now
            self._reasoned = True
        self._ended |= _value_at(decoded, fields.end) not in (None, False)
        if not self._is_of_api and any(
            _value_at(decoded, path) is not None for path in fields.known_paths
        ):
            self._know()
        if not fields.counted.isdisjoint(decoded):
            self._count(*(_value_at(decoded, path) for path in fields.counts))

    def _know(self) -> None:
        """Note that this is an answer of the API."""
        self._is_of_api = True
        if self._outcome is None:
            self.text = b""

    def _fail(self, outcome: Outcome, data: bytes) -> None:
        if self._outcome is None:
            self._outcome, self.text = outcome, data[:LONGEST_TEXT]

    def _note_content(self, now: float) -> None:
        self.stamps.append(now)
        if math.isnan(self.first):
            self.first = now

    def _count(self, tokens_in: Any, tokens_out: Any, reasoning: Any = None) -> None:
        """Note counts of the server; None keeps the one before it."""
        if tokens_in is not None:
            self.tokens_in = _counted(tokens_in)
        if tokens_out is not None:
            without = _counted(reasoning)
            unknown = self._reasoned and without < 0
            self.tokens_out = -1 if unknown else max(_counted(tokens_out) - max(without, 0), -1)


def _value_at(value: Any, path: tuple[str, ...]) -> Any:
    """Return what lies at a path; None where it leads nowhere."""
    for name in path:
        if type(value) is dict:
            value = value.get(name)
        elif type(value) is list and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


_EMPTY_VALUES: tuple[Any, ...] = (None, "", [], {})


def _any(value: Any, paths: tuple[tuple[str, ...], ...]) -> bool:
    for path in paths:  # noqa: SIM110 - a generator takes longer, for each event of a stream
        if _value_at(value, path) not in _EMPTY_VALUES:
            return True
    return False


def _counted(number: Any) -> int:
    """Return a number of tokens, which some servers write as 2.0; −1 for what can be none."""
    is_count = type(number) in (int, float) and 0 <= number < 1 << 53 and number == int(number)
    return int(number) if is_count else -1


@dataclass(frozen=True)
class Prompt:
    """What a language model is asked.

    Attributes:
        text: The prompt; empty where `messages` are given.
        messages: A conversation, as chat APIs take it.
        tokens: The most tokens to answer with; None leaves that to the server.
        fields: Further fields of the body that asks it.
    """

    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    tokens: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Dialect:
    """An API.

    Attributes:
        name: As in `--api`.
        path: Where its requests go if the address has no path.
        prompt_field: The field of a prompt, "messages" of a conversation; empty: the user gives
            bodies.
        limit: The path of the field that limits the tokens.
        always: The fields of every body.
        models: Where the server lists its models, and the names of the list and of a model's name
            in it; empty where requests name none.
        fields: Where answers say what; None where they say nothing but that they came.
        framing: What bodies are split by, as `AnswerReader` takes it.
    """

    name: str
    path: str = "/"
    prompt_field: str = ""
    limit: str = ""
    always: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    fields: AnswerFields | None = None
    framing: type[EventStream | WholeBody] | None = None

    def body(self, prompt: Prompt, fields: Mapping[str, Any]) -> bytes:
        """Return the body that asks a prompt, with further fields."""
        content: Any = prompt.messages or ({"role": "user", "content": prompt.text},)
        if self.prompt_field != "messages":
            contents = (str(message.get("content", "")) for message in prompt.messages)
            content = prompt.text or "\n".join(contents)
        limit: Any = prompt.tokens
        for name in reversed(self.limit.split(".")):
            limit = {name: limit}
        body = {self.prompt_field: content, **self.always}
        for part in ({} if prompt.tokens is None else limit, fields, prompt.fields):
            body = with_fields(body, part)
        return msgspec.json.encode(body)

    def reader(self) -> AnswerReader | None:
        """Return what reads the answers of a connection."""
        return None if self.fields is None else AnswerReader(self.fields, self.framing)


def with_fields(body: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with further fields; those of an object are added to it."""
    merged = dict(body)
    for name, value in fields.items():
        are_objects = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = with_fields(merged[name], value) if are_objects else value
    return merged
