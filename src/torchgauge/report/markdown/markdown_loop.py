"""The steps and top layers of a loop as Markdown."""

from __future__ import annotations

from torchgauge.records.timeline.loop import Loop
from torchgauge.report.content import loop as content
from torchgauge.report.markdown.markdown_blocks import block_parts, warning_parts
from torchgauge.report.markdown.markdown_figures import figures
from torchgauge.report.markdown.markdown_text import code, document, join, markdown, text
from torchgauge.report.markdown.markdown_tree import layers
from torchgauge.report.tables.traced_lines import traced_lines


def render(loop: Loop) -> str:
    """Return the Markdown."""
    roots = join(", ", map(code, loop.roots)) or "no module"
    rank = f", rank {loop.rank.number} of {loop.rank.world}" if loop.rank is not None else ""
    summary = text(f"{loop.count:,} steps, {content.ENDS[loop.by]}{rank}")
    blocks = [markdown("### Loop of {}", roots), summary, *figures([content.steps(loop)])]
    if loop.without_model:
        blocks = [markdown("### A program that called no model")]
    if loop.tree is not None:
        blocks += layers(loop.tree)
    for block in traced_lines(loop.functions) if loop.functions else ():
        blocks += block_parts(block)
    return document(blocks + warning_parts(loop.all_warnings))
