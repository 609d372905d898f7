"""The record itself, as JSON."""

from __future__ import annotations

from torchgauge.model import codec
from torchgauge.model.record import Record


def render(record: Record) -> str:
    """Return the whole record as JSON text."""
    return codec.encode(record).decode()
