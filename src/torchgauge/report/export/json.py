"""The record itself, as JSON."""

from __future__ import annotations

from torchgauge.records import codec
from torchgauge.records.record import Record


def render(record: Record) -> str:
    """Return the whole record as JSON text."""
    return codec.encode(record).decode()
