"""Where the time of a tree goes, as Markdown."""

from __future__ import annotations

from torchgauge import units
from torchgauge.model import tables
from torchgauge.model.tree import Node, Tree
from torchgauge.report import sections
from torchgauge.report.markdown_text import Markdown, code, markdown, more, table

TOP = 10
NOTHING = "–"
LAYERS = ("layer", "class", "calls:", "own time:", "share:", "own FLOPs:", "peak memory:")


def layers(tree: Tree) -> list[Markdown]:
    """Return the layers and buckets with most time of their own."""
    whole = tree.root.time
    if not whole:
        return []
    axis = "host" if tree.root.device_time is None else "device"
    parts = [node for node in tree.root.walk() if node.kind in ("model", "layer", "bucket")]
    own = [(tables.sum_of(tables.own(node), axis) or 0.0, node) for node in parts]
    own.sort(key=lambda one: -one[0])
    rows = [_layer(node, time, whole) for time, node in own[:TOP] if time]
    kept = [place for place in range(len(LAYERS)) if any(row[place] != NOTHING for row in rows)]
    names, *shown = ([line[place] for place in kept] for line in (LAYERS, *rows))
    step = f"Where the time of a step goes ({tree.how}, time on the {axis})"
    blocks = [
        markdown("**{}**", step),
        table(names, shown),
        *more(sum(time > 0 for time, _ in own), TOP),
    ]
    if tree.headline_ratio is not None:
        beside = sections.beside_headline(tree.headline_ratio).capitalize()
        blocks.append(markdown("{}.", beside))
    return blocks


def _layer(node: Node, time: float, whole: float) -> tuple[str, ...]:
    own = tables.own(node)
    flops = tables.sum_of(own, "flops")
    least = "≥ " if any(one.row.unknown for one in own) else ""
    return (
        code(node.row.path or node.name) if node.kind != "bucket" else markdown("*{}*", node.name),
        code(node.row.type) if node.row.type else "",
        f"{node.calls:,}" if node.calls else NOTHING,
        units.time(time, 3),
        f"{100 * time / whole:.1f} %",
        NOTHING if flops is None else least + units.count(flops, 3),
        NOTHING if node.peak is None else units.size(node.peak, 3),
    )
