"""Every API that the client speaks, by name."""

from __future__ import annotations

from torchgauge.errors import InputError
from torchgauge.serving.client.dialect import Dialect
from torchgauge.serving.client.dialects import (
    json,
    kserve_v2,
    openai_chat,
    openai_completions,
    torchgauge,
)
from torchgauge.similar import did_you_mean, similar

DIALECTS: dict[str, Dialect] = {
    module.DIALECT.name: module.DIALECT
    for module in (json, openai_chat, openai_completions, kserve_v2, torchgauge)
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
