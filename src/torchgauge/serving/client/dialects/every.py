"""Every API that the client speaks, by name.

Any server may name batch and service in its answer's head, and every API reads them:
`Server-Timing: batch;desc="8", service;dur=12.5` (W3C Server Timing; durations are milliseconds).
"""

from __future__ import annotations

import re

import msgspec

from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import LARGEST_BATCH
from torchgauge.serving.client.columns import Columns
from torchgauge.serving.client.dialect import Dialect, Prompt
from torchgauge.serving.client.dialects.openai_answer import OpenAIAnswer
from torchgauge.similar import did_you_mean, similar


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
