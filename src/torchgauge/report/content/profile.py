"""A profile: what was measured, what matters most, its figures, its tree and its warnings."""

from __future__ import annotations

from torchgauge.records.profile import Profile
from torchgauge.report.content.conclusion import conclusion
from torchgauge.report.content.document import (
    Block,
    Document,
    Facts,
    Options,
    Tree,
    Warnings,
)
from torchgauge.report.content.sections import sections, warnings
from torchgauge.report.tables.alive_tensors import alive


def title(profile: Profile) -> str:
    """Return the model's name."""
    return profile.target.name


def document(profile: Profile, options: Options) -> Document:
    """Return the figures of what was measured, the tensors alive at the peak, and the tree."""
    head, *figures = sections(profile)
    blocks: list[Block] = [*figures]
    if profile.memory is not None and profile.memory.tensors:
        blocks.append(alive(profile.memory))
    if profile.tree is not None:
        blocks.append(Tree(profile.tree, options))
    if listed := warnings(profile):
        heading = "Warnings" if profile.complete else "Failed and warnings"
        blocks.append(Warnings(listed, heading))
    facts = Facts([(row.label, row.value) for row in head.rows])
    return Document(
        title(profile), facts=facts, blocks=blocks, conclusion=conclusion(profile),
        names=(title(profile),),
    )  # fmt: skip
