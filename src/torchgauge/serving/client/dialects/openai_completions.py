"""OpenAI's completions, streamed."""

from __future__ import annotations

import msgspec

from torchgauge.serving.client.dialect import Dialect, Prompt
from torchgauge.serving.client.dialects.openai_answer import OpenAIAnswer


def body(prompt: Prompt, model: str) -> bytes:
    """Return the body of a request for a streamed answer with its usage."""
    text = prompt.text or "\n".join(str(m.get("content", "")) for m in prompt.messages)
    fields: dict[str, object] = {"prompt": text, "stream": True}
    if model:
        fields["model"] = model
    if prompt.tokens is not None:
        fields["max_tokens"] = prompt.tokens
    return msgspec.json.encode(fields | {"stream_options": {"include_usage": True}})


DIALECT = Dialect(
    "openai-completions", "/v1/completions", OpenAIAnswer, body, model_path="/v1/models"
)
