"""The headline figures of several sections as one table of Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from torchgauge import units
from torchgauge.report.content.section import Row, Section
from torchgauge.report.markdown.markdown_text import Markdown, markdown, table

# The rows of the console's sections that a reviewer looks for; the record has all.
HEADLINES = {
    "Latency": ("median", "p90", "p99", "GPU time", "machine"),
    "Throughput": ("images", "tokens", "samples", "calls"),
    "Training step": ("forward", "backward", "optimizer", "at least", "together"),
    "Memory of a step": ("peak", "after", "for backward"),
    "Cost": ("FLOPs", "executed", "bytes", "coverage"),
    "Size": ("parameters", "on disk"),
    "Bottleneck": ("bound by", "efficiency"),
    "Steps": ("bare", "recorded", "captured", "communicated"),
}


def figures(all_sections: Iterable[Section]) -> list[Markdown]:
    """Return the headline rows of the sections as one table, latency first."""
    all_sections = list(all_sections)
    rows = []
    for title, labels in HEADLINES.items():
        for section in all_sections:
            if section.title.startswith(title):
                rows_by_label = {row.label: row for row in section.rows if row.label in labels}
                rows += [
                    _figure(section, rows_by_label[label])
                    for label in labels
                    if label in rows_by_label
                ]
    return [table(("", "figure:", "", "how"), rows)] if rows else []


def _figure(section: Section, row: Row) -> tuple[str, str, str, str]:
    note = row.note if row.share is None else units.percent(row.share)
    title = f"{section.title}, {row.label}"
    return title, markdown("**{}**", row.value), note, row.how or section.how
