"""The headline figures and top layers of a profile as Markdown."""

from __future__ import annotations

from torchgauge.records.profile import Profile
from torchgauge.report.content import sections
from torchgauge.report.content.profile import most_important
from torchgauge.report.markdown.markdown_blocks import block_parts, table_parts, warning_parts
from torchgauge.report.markdown.markdown_figures import figures
from torchgauge.report.markdown.markdown_text import code, document, join, markdown
from torchgauge.report.markdown.markdown_tree import layers
from torchgauge.report.tables.alive_tensors import alive


def render(profile: Profile) -> str:
    """Return the Markdown."""
    head, *body = sections.sections(profile)
    facts = {row.label: row.value for row in head.rows}
    environment = join(" · ", (facts[name] for name in ("run as", "machine", "software")))
    summary = markdown(
        "{}, input {}<br>{}", code(facts["target"]), code(facts["input"]), environment
    )
    important = [part for block in most_important(profile) for part in block_parts(block)]
    blocks = [markdown("### {}", code(head.title)), summary, *important, *figures(body)]
    if profile.tree is not None:
        blocks += layers(profile.tree)
    if profile.memory is not None and profile.memory.tensors:
        blocks += table_parts(alive(profile.memory))
    return document(blocks + warning_parts(sections.warnings(profile)))
