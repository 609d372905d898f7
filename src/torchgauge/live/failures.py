"""Errors as the page shows them."""

from __future__ import annotations

from typing import Any

from torchgauge.errors import TorchgaugeError, text_of
from torchgauge.report.page.page_shorter import short


def error_fields(error: TorchgaugeError) -> dict[str, str]:
    """Return what an error says, as `--json` of a command does."""
    return {name: getattr(error, name) for name in ("id", "message", "cause", "remedy")}


def expected(error: Exception) -> TorchgaugeError:
    """Return the error itself if it was raised on purpose, else one that says what happened."""
    if isinstance(error, TorchgaugeError):
        return error
    return TorchgaugeError(
        "This part of the page could not be made.",
        id="live-failed",
        cause=text_of(error),
        remedy="The rest of the page is not affected; please report this.",
    )


def failed_state(error: Exception) -> dict[str, Any]:
    """Return the state of a series whose judgement or figures failed."""
    failure = expected(error)
    text = " ".join(filter(None, (failure.message, failure.cause)))
    return {"kind": "failed", "alerts": [short(text)], "unjudged": []}
