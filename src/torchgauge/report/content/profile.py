"""A profile: what was measured, what matters most, its figures, its tree and its warnings."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.latency.latency import Latency
from torchgauge.records.memory.memory import Memory
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.node import Node
from torchgauge.records.timeline.tree import Tree as RecordedTree
from torchgauge.records.work.cost import NOT_RUN
from torchgauge.records.work.roofline import Bottleneck, Roofline
from torchgauge.report.content import document as doc
from torchgauge.report.content import section as time_sections
from torchgauge.report.content.findings import most_important
from torchgauge.report.content.generation.generation import shapes, stages
from torchgauge.report.content.sections import peak_place, sections, warnings
from torchgauge.report.content.serving.serving import of_profile
from torchgauge.report.notebook import charts
from torchgauge.report.notebook.charts import Chart
from torchgauge.report.tables.alive_tensors import alive
from torchgauge.report.tables.category_table import categories, most_time, roofs_of
from torchgauge.report.tables.compilation_tables import eager_table
from torchgauge.report.tables.work_table import work_table


def title(profile: Profile) -> str:
    """Return the model's name."""
    return profile.target.name


def document(profile: Profile, options: doc.Options) -> doc.Document:
    """Return the figures of what was measured, the tensors alive at the peak, and the tree."""
    head, *figures = sections(profile)
    blocks: list[doc.Block] = [*figures]
    if profile.generation is not None:
        blocks += [shapes([profile.generation]), *stages([profile.generation])]
    if profile.serving is not None or profile.capacity is not None:
        blocks += of_profile(profile)
    if profile.memory is not None and profile.memory.tensors:
        blocks.append(alive(profile.memory))
    if profile.compilation is not None and profile.compilation.beside_eager is not None:
        blocks.append(eager_table(profile.compilation.beside_eager))
    if profile.cost is not None and NOT_RUN in profile.cost.unknown:
        blocks += work_table(profile.cost, "layer", None)
    if profile.tree is not None:
        blocks += [doc.Tree(profile.tree, options), *categories(profile.tree, roofs_of(profile))]
    if listed := warnings(profile):
        heading = "Warnings" if profile.complete else "Failed and warnings"
        blocks.append(doc.Warnings(listed, heading))
    facts = doc.Facts([(row.label, row.value) for row in head.rows])
    return doc.Document(
        title(profile), facts=facts, blocks=blocks, conclusion=conclusion(profile),
        names=(title(profile),), charts=drawn(profile),
    )  # fmt: skip


def drawn(profile: Profile) -> list[Chart]:
    """Return the charts of what was measured."""
    shown_charts = [] if profile.latency is None else charts.latency(profile.latency)
    shown_charts += [] if profile.training is None else charts.training(profile.training)
    return shown_charts + ([] if profile.memory is None else charts.memory(profile.memory))


def conclusion(profile: Profile) -> list[doc.Block]:
    """Return latency, bottleneck, MFU, slowest layer, peak memory in a line each, and findings."""
    pairs: list[tuple[str, doc.Detailed]] = []
    if profile.latency is not None:
        pairs.append(("latency", _latency(profile.latency)))
    if profile.bottleneck is not None:
        pairs.append(("bound by", _bound(profile.bottleneck, profile.roofline)))
    if profile.utilization is not None and profile.utilization.mfu is not None:
        row = time_sections.utilization(profile.utilization).rows[0]
        pairs.append(("MFU", doc.Detailed(row.value, f"  {row.note}")))
    if (slowest := slowest_leaf(profile.tree)) is not None:
        layer, share = slowest
        layer_type = f"{layer.row.type}, " if layer.row.type else ""
        detail = f"  {layer_type}{units.percent(share)} of the step"
        pairs.append(("slowest layer", doc.Detailed(layer.path, detail)))
    if profile.tree is not None and (parts := most_time(profile.tree)):
        pairs.append(("most time in", doc.Detailed(", ".join(parts), "")))
    if profile.memory is not None:
        pairs.append(("peak memory", _peak(profile.memory)))
    blocks: list[doc.Block] = [doc.Facts(pairs, title="In short")] if pairs else []
    return [*blocks, *most_important(profile)]


def slowest_leaf(tree: RecordedTree | None) -> tuple[Node, float] | None:
    """Return the layer that calls no other and takes most of the time, and its share of it."""
    if tree is None or not tree.root.time:
        return None
    leaves = [node for node in tree.root.walk() if node.is_leaf and node.time]
    if not leaves:
        return None
    slowest = max(leaves, key=lambda node: node.time or 0.0)
    return slowest, (slowest.time or 0.0) / tree.root.time


def _latency(latency: Latency) -> doc.Detailed:
    median = next(row for row in time_sections.latency(latency).rows if row.label == "median")
    return doc.Detailed(median.value, f"  {median.note}" * bool(median.note))


def _bound(bottleneck: Bottleneck, roofline: Roofline | None) -> doc.Detailed:
    if not bottleneck.kind:
        return doc.Detailed(units.UNKNOWN, "")
    detail = f"  {bottleneck.confidence}"
    if roofline is not None and roofline.efficiency is not None:
        reached = units.percent(roofline.efficiency)
        detail += f", at {'at least ' * roofline.at_least}{reached} of this machine's roofs"
    return doc.Detailed(bottleneck.kind, detail)


def _peak(memory: Memory) -> doc.Detailed:
    place = peak_place(memory)
    return doc.Detailed(units.size(memory.peak), f"  {place}" * bool(place))
