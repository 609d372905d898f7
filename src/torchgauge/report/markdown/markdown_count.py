"""The totals of a count and the layers with most work as Markdown."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.count import Count
from torchgauge.report.content import count as content
from torchgauge.report.content import sections
from torchgauge.report.markdown.markdown_blocks import table_parts, warning_parts
from torchgauge.report.markdown.markdown_figures import figures
from torchgauge.report.markdown.markdown_text import (
    Markdown,
    code,
    document,
    markdown,
    omitted,
    table,
)
from torchgauge.report.markdown.markdown_tree import TOP


def render(count: Count) -> str:
    """Return the Markdown."""
    passes = "forward and backward" if count.cost.backward else "forward"
    spec = code(count.target.spec)
    summary = markdown("{}, {}, counted on {} tensors", spec, passes, count.cost.counted_on)
    count_sections = [sections.cost(count.cost)]
    count_sections += [sections.size(count.size)] if count.size is not None else []
    if count.training is not None:
        count_sections.append(content.training(count.training))
    blocks = [markdown("### {}", code(count.target.name)), summary, *figures(count_sections)]
    blocks += _counted_layers(count.cost)
    if count.other_devices:
        blocks += table_parts(content.other_devices(count))
    return document(blocks + warning_parts(count.all_warnings))


def _counted_layers(cost: Cost) -> list[Markdown]:
    """Return the layers with most FLOPs of their own."""
    total_flops = sum(layer.own.flops for _, layer in cost.tree.walk())
    by_flops = sorted((layer for _, layer in cost.tree.walk()), key=lambda layer: -layer.own.flops)
    rows = [
        (
            code(layer.node.path or layer.node.name),
            code(layer.node.kind),
            ("≥ " if layer.own.at_least else "") + units.count(layer.own.flops, 3),
            f"{100 * layer.own.flops / total_flops:.1f} %",
            ("≥ " if layer.own.at_least else "") + units.size(layer.own.bytes, 3),
        )
        for layer in by_flops[:TOP]
        if layer.own.flops
    ]
    if not rows:
        return []
    layer_table = table(("layer", "class", "own FLOPs:", "share:", "own bytes:"), rows)
    return [
        markdown("**Where the FLOPs go ({})**", cost.how),
        layer_table,
        *omitted(sum(1 for layer in by_flops if layer.own.flops), TOP),
    ]
