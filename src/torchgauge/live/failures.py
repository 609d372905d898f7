"""Errors as the page shows them."""

from __future__ import annotations

from torchgauge.errors import TorchgaugeError


def error_fields(error: TorchgaugeError) -> dict[str, str]:
    """Return what an error says, as `--json` of a command does."""
    return {name: getattr(error, name) for name in ("id", "message", "cause", "remedy")}
