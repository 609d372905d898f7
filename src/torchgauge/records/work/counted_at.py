"""Where an operator's work is counted: at itself, at one that calls it, or in what it calls."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.records.timeline.node import Node, base_name

ITSELF = "itself"
BELOW = "what it calls"
NOWHERE = "nowhere"


def counted_at(chain: Sequence[Node]) -> str:
    """Return where the work of an operator is counted, given with those that it ran again as.

    `itself`; the name of an operator around it, whose figures hold its own; `what it calls`;
    `nowhere` where it is not known.
    """
    rows = [node.row for node in chain]
    if any(row.flops or row.bytes or row.calls_without_bytes for row in rows):
        return ITSELF
    if any(row.unknown for row in rows):
        return NOWHERE
    above = chain[0].parent
    while above is not None and above.kind == "operator":
        if above.row.flops or above.row.bytes or above.row.calls_without_bytes:
            return base_name(above.name)
        if above.row.unknown:
            return NOWHERE
        above = above.parent
    outermost = chain[0]
    if (
        outermost.flops
        or outermost.bytes
        or outermost.at_least
        or outermost.total("calls_without_bytes")
    ):
        return BELOW
    if outermost.flops is None and outermost.bytes is None:
        return NOWHERE
    # It made a view or memory, which is no work, or called nothing but such.
    return BELOW if all(row.flops is None and row.bytes is None for row in rows) else ITSELF
