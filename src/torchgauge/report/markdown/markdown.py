"""A record as Markdown, short enough for a pull request's comment."""

from __future__ import annotations

from torchgauge.records.record import Record
from torchgauge.report import kinds
from torchgauge.report.markdown.markdown_blocks import document_text


def render(record: Record) -> str:
    """Return the Markdown, with tables as GitHub and others know them."""
    return document_text(kinds.document(record))
