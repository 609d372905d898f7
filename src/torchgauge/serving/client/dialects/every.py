"""Every API that the client speaks, by name.

Any server may name batch and service in its answer's head, and every API reads them:
`Server-Timing: batch;desc="8", service;dur=12.5` (W3C Server Timing; durations are milliseconds).
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import LARGEST_BATCH
from torchgauge.serving.client.columns import Columns
from torchgauge.serving.client.dialect import Dialect, EventStream, Outcome, Prompt
from torchgauge.similar import did_you_mean, similar

_LARGEST_BODY = 1 << 24
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


class _Part(msgspec.Struct):
    content: Any = None
    tool_calls: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct):
    delta: _Part | None = None
    message: _Part | None = None
    text: Any = None
    finish_reason: Any = None


class _Details(msgspec.Struct):
    reasoning_tokens: Any = None


class _Usage(msgspec.Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    completion_tokens_details: _Details | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class OpenAIAnswer:
    """Reads one answer after the other; see `AnswerReader`.

    Tokens out are those of the content: of an answer with reasoning, less its reasoning tokens, or
    unknown where the server does not count these.
    """

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_Answer).decode
        self.start(streamed=True)

    def start(self, *, streamed: bool) -> None:
        """Begin an answer."""
        self._events = EventStream() if streamed else None
        self._body = bytearray()
        self._outcome: Outcome = "done"
        self.first = self.reasoning = math.nan
        self.stamps: list[float] = []
        self.tokens_in = self.tokens_out = -1
        self._ended = self._reasoned = False

    def feed(self, data: bytes, now: float) -> None:
        """Read a piece of the body. Raises EventTooLongError."""
        if self._events is None:
            self._body += data[: _LARGEST_BODY - len(self._body)]
            if math.isnan(self.first):
                self.first = now
            return
        for event in self._events.feed(data):
            self._read(event, now)

    def finish(self, now: float) -> Outcome:
        """Return what the answer was."""
        if self._events is None:
            return self._whole_body()
        for event in self._events.end():
            self._read(event, now)
        if self._outcome == "done" and not self._ended:
            return "stream"
        return self._outcome

    def _read(self, event: bytes, now: float) -> None:
        data = event.strip()
        if data == b"[DONE]":
            self._ended = True
        if data in (b"[DONE]", b""):
            return
        try:
            answer = self._decode(event)
        except _UNREADABLE:
            self._outcome = "protocol"
            return
        if answer.error is not None:
            self._outcome = "stream"
        for choice in answer.choices or ():
            self._read_choice(choice, now)
        self._count(answer.usage)

    def _read_choice(self, choice: _Choice, now: float) -> None:
        part = choice.delta
        if choice.text or (part is not None and (part.content or part.tool_calls)):
            self.stamps.append(now)
            if len(self.stamps) == 1:
                self.first = now
        elif part is not None and (part.reasoning_content or part.reasoning):
            if not self._reasoned:
                self.reasoning = now
            self._reasoned = True
        if choice.finish_reason is not None:
            self._ended = True

    def _count(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        if usage.prompt_tokens is not None:
            self.tokens_in = _counted(usage.prompt_tokens)
        if usage.completion_tokens is not None:
            details = usage.completion_tokens_details
            reasoning = _counted(details.reasoning_tokens) if details is not None else -1
            if reasoning < 0 and self._reasoned:
                self.tokens_out = -1
            else:
                self.tokens_out = max(_counted(usage.completion_tokens) - max(reasoning, 0), -1)

    def _whole_body(self) -> Outcome:
        if len(self._body) >= _LARGEST_BODY:
            return "done"  # too long to be read; it came
        try:
            answer = self._decode(self._body)
        except _UNREADABLE:
            return "protocol"
        if answer.error is not None:
            return "stream"
        for choice in answer.choices or ():
            message = choice.message
            if message is not None and (message.reasoning_content or message.reasoning):
                self._reasoned = True
        self._count(answer.usage)
        return "done"


def _counted(number: Any) -> int:
    """Return a number of tokens, which some servers write as 2.0; −1 for what can be none."""
    is_count = type(number) in (int, float) and 0 <= number < 1 << 53 and number == int(number)
    return int(number) if is_count else -1


def chat_body(prompt: Prompt, model: str) -> bytes:
    """Return the body of a request for a streamed chat completion with its usage."""
    messages = prompt.messages or ({"role": "user", "content": prompt.text},)
    return _openai_body({"messages": messages}, prompt, model)


def completions_body(prompt: Prompt, model: str) -> bytes:
    """Return the body of a request for a streamed completion with its usage."""
    text = prompt.text or "\n".join(str(m.get("content", "")) for m in prompt.messages)
    return _openai_body({"prompt": text}, prompt, model)


def _openai_body(fields: dict[str, object], prompt: Prompt, model: str) -> bytes:
    fields["stream"] = True
    if model:
        fields["model"] = model
    if prompt.tokens is not None:
        fields["max_tokens"] = prompt.tokens
    return msgspec.json.encode(fields | {"stream_options": {"include_usage": True}})


_OPENAI = (
    ("openai-chat", "/v1/chat/completions", chat_body),
    ("openai-completions", "/v1/completions", completions_body),
)
# "json" is any HTTP endpoint: a body of the user's, and an answer of which only the status is read;
# "kserve-v2" the Open Inference Protocol over HTTP (Triton), likewise; "torchgauge" the reference
# server.
DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("json"),
        *(
            Dialect(name, path, OpenAIAnswer, body, model_path="/v1/models")
            for name, path, body in _OPENAI
        ),
        Dialect("kserve-v2"),
        Dialect("torchgauge", path="/torchgauge"),
    )
}


def dialect_named(name: str) -> Dialect:
    """Return an API. Raises InputError `api-unknown`."""
    if name not in DIALECTS:
        raise InputError(
            f"There is no API '{name}'.",
            id="api-unknown",
            cause=f"It is one of {', '.join(DIALECTS)}.",
            remedy=did_you_mean(similar(name, DIALECTS), "Choose one of these."),
        )
    return DIALECTS[name]


_LONGEST_TIMING = 1 << 10  # bytes of a `Server-Timing` header that are read
_SERVER_TIMING = re.compile(
    rb'(?:^|,)\s*(?:(batch)|service)\s*(?:;(?:[^",;]|"[^"]*")*)*?;\s*(?(1)desc|dur)\s*=\s*'
    rb'("?)([0-9.eE+-]{1,24})\2\s*(?=[,;]|$)'
)


def read_timing(columns: Columns, row: int, value: bytes) -> None:
    """Note the batch and the seconds of service that a `Server-Timing` header names."""
    if len(value) > _LONGEST_TIMING:
        return
    for batch, _, number in _SERVER_TIMING.findall(value):
        try:
            amount = float(number)
        except ValueError:
            continue
        if batch and 1 <= amount <= LARGEST_BATCH:
            columns.batch[row] = int(amount)
        elif not batch and 0 <= amount < 1e9:
            columns.service[row] = amount / 1000
