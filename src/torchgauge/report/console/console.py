"""The summary for a terminal; 80 columns are enough, and a pipe gets no colours."""

from __future__ import annotations

from rich.console import RenderableType

from torchgauge.records.record import Record
from torchgauge.report import kinds
from torchgauge.report.console import blocks
from torchgauge.report.console.plain import plain
from torchgauge.report.content.document import Options


def render(record: Record) -> str:
    """Return the summary as plain text (see `plain`)."""
    return plain(lambda width: view(record, width=width))


def view(record: Record, options: Options | None = None, *, width: int) -> RenderableType:
    """Return the summary as something rich prints in `width` columns."""
    return blocks.view(kinds.document(record, options), width)
