"""Where the time of a tree goes, as Markdown."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.node import Node
from torchgauge.records.timeline.tree import Tree
from torchgauge.report.content import sections
from torchgauge.report.markdown.markdown_text import Markdown, code, markdown, omitted, table

TOP = 10
EMPTY_CELL = "–"
LAYERS = ("layer", "class", "calls:", "own time:", "share:", "own FLOPs:", "peak memory:")


def layers(tree: Tree) -> list[Markdown]:
    """Return the layers and buckets with most time of their own."""
    total_time = tree.root.time
    if not total_time:
        return []
    axis = "host" if tree.root.device_time is None else "device"
    parts = [node for node in tree.root.walk() if node.kind in ("model", "layer", "bucket")]
    own = [(tables.sum_of(tables.own(node), axis) or 0.0, node) for node in parts]
    own.sort(key=lambda pair: -pair[0])
    rows = [_layer(node, time, total_time) for time, node in own[:TOP] if time]
    column_indices = [
        index for index in range(len(LAYERS)) if any(row[index] != EMPTY_CELL for row in rows)
    ]
    names, *shown_rows = ([line[index] for index in column_indices] for line in (LAYERS, *rows))
    step = f"Where the time of a step goes ({tree.how}, time on the {axis})"
    blocks = [
        markdown("**{}**", step),
        table(names, shown_rows),
        *omitted(sum(time > 0 for time, _ in own), TOP),
    ]
    if tree.headline_ratio is not None:
        sentence = sections.tree_latency_note(tree.headline_ratio).capitalize()
        blocks.append(markdown("{}.", sentence))
    return blocks


def _layer(node: Node, time: float, total_time: float) -> tuple[str, ...]:
    own = tables.own(node)
    flops = tables.sum_of(own, "flops")
    prefix = "≥ " if any(own_node.row.unknown for own_node in own) else ""
    return (
        code(node.row.path or node.name) if node.kind != "bucket" else markdown("*{}*", node.name),
        code(node.row.type) if node.row.type else "",
        f"{node.calls:,}" if node.calls else EMPTY_CELL,
        units.time(time, 3),
        f"{100 * time / total_time:.1f} %",
        EMPTY_CELL if flops is None else prefix + units.count(flops, 3),
        EMPTY_CELL if node.peak is None else units.size(node.peak, 3),
    )
