"""Every API that the client speaks, by name.

Any server may name batch and service in its answer's head, and every API reads them:
`Server-Timing: batch;desc="8", service;dur=12.5` (W3C Server Timing; durations are milliseconds).
"""

from __future__ import annotations

import re
from dataclasses import replace

from torchgauge.errors import InputError, option_conflict
from torchgauge.records.serving.capacity_plan import LARGEST_BATCH
from torchgauge.serving.client.columns import Columns
from torchgauge.serving.client.dialect import AnswerFields, Dialect
from torchgauge.serving.client.framing import EventStream, Lines
from torchgauge.similar import did_you_mean, similar

_OPENAI = Dialect(
    "openai-chat",
    "/v1/chat/completions",
    prompt_field="messages",
    limit="max_tokens",
    always={"stream": True, "stream_options": {"include_usage": True}},
    models=("/v1/models", "data", "id"),
    fields=AnswerFields(
        *("choices.0.delta.content", "choices.0.text", "choices.0.delta.tool_calls"),
        reasoning=tuple(
            f"choices.0.{part}.{name}"
            for part in ("delta", "message")
            for name in ("reasoning_content", "reasoning")
        ),
        other_fields=("choices", "usage"),
        end="choices.0.finish_reason",
        counts=(
            *("usage.prompt_tokens", "usage.completion_tokens"),
            "usage.completion_tokens_details.reasoning_tokens",
        ),
    ),
)
_OLLAMA = Dialect(
    "ollama-chat",
    "/api/chat",
    prompt_field="messages",
    limit="options.num_predict",
    always={"stream": True},
    models=("/api/tags", "models", "name"),
    fields=AnswerFields(
        *("message.content", "response", "message.tool_calls"),
        reasoning=("message.thinking", "thinking"),
        other_fields=("message",),
        end="done",
        counts=("prompt_eval_count", "eval_count"),
    ),
    framing=Lines,
)
_TGI = Dialect(
    "tgi",
    "/generate_stream",
    prompt_field="inputs",
    limit="parameters.max_new_tokens",
    always={"parameters": {"details": True}},
    fields=AnswerFields(
        "token.text",
        other_fields=("generated_text",),
        end="generated_text",
        mute="token.special",
        counts=("details.input_length", "details.generated_tokens"),
    ),
)
# "json" is any HTTP endpoint: a body of the user's, and an answer of which only the status is read;
# "kserve-v2" the Open Inference Protocol over HTTP (Triton), likewise; "sse" and "ndjson" are any
# streams; "torchgauge" is the reference server.
DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("json"),
        _OPENAI,
        replace(_OPENAI, name="openai-completions", path="/v1/completions", prompt_field="prompt"),
        _OLLAMA,
        replace(_OLLAMA, name="ollama-generate", path="/api/generate", prompt_field="prompt"),
        _TGI,
        Dialect("sse", fields=AnswerFields(), framing=EventStream),
        Dialect("ndjson", fields=AnswerFields(), framing=Lines),
        Dialect("kserve-v2"),
        Dialect("torchgauge", path="/torchgauge"),
    )
}
_BY_PATH = ("json", "sse", "ndjson")


def dialect_named(name: str, content: str = "") -> Dialect:
    """Return an API, whose contents are at the path `content` if there is one.

    Raises InputError `api-unknown`, `option-conflict`.
    """
    if name not in DIALECTS:
        raise InputError(
            f"There is no API '{name}'.",
            id="api-unknown",
            cause=f"It is one of {', '.join(DIALECTS)}.",
            remedy=did_you_mean(similar(name, DIALECTS), "Choose one of these."),
        )
    if not content:
        return DIALECTS[name]
    if name not in _BY_PATH:
        raise option_conflict(
            f"The API {name} says itself where contents are, or has none.",
            f"Leave --content out, or give --api {', '.join(_BY_PATH)}.",
        )
    return replace(DIALECTS[name], fields=AnswerFields.by_path(content))


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
