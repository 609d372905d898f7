"""What a profile comes to: its headline figures, and the findings that matter most."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.latency.latency import Latency
from torchgauge.records.memory.memory import Memory
from torchgauge.records.profile import Profile
from torchgauge.records.work.roofline import Bottleneck, Roofline
from torchgauge.report.content.document import Block, Detailed, Facts, Items
from torchgauge.report.content.findings import findings, slowest_leaf
from torchgauge.report.content.sections import peak_place
from torchgauge.report.content.time_sections import latency as latency_section


def conclusion(profile: Profile) -> list[Block]:
    """Return latency, bottleneck, slowest layer and peak memory in a line each, then findings."""
    pairs: list[tuple[str, Detailed]] = []
    if profile.latency is not None:
        pairs.append(("latency", _latency(profile.latency)))
    if profile.bottleneck is not None:
        pairs.append(("bound by", _bound(profile.bottleneck, profile.roofline)))
    if (slowest := slowest_leaf(profile.tree)) is not None:
        layer, share = slowest
        detail = f"  {layer.row.type}, {units.percent(share)} of the step"
        pairs.append(("slowest layer", Detailed(layer.path, detail)))
    if profile.memory is not None:
        pairs.append(("peak memory", _peak(profile.memory)))
    blocks: list[Block] = [Facts(pairs, title="In short")] if pairs else []
    return [*blocks, *most_important(profile)]


def most_important(profile: Profile) -> list[Items]:
    """Return the findings about the largest shares of the step, if any, in a line each."""
    entries = [("·", finding.title) for finding in findings(profile)]
    return [Items("What matters most", entries)] if entries else []


def _latency(latency: Latency) -> Detailed:
    median = next(row for row in latency_section(latency).rows if row.label == "median")
    return Detailed(median.value, f"  {median.note}" * bool(median.note))


def _bound(bottleneck: Bottleneck, roofline: Roofline | None) -> Detailed:
    if not bottleneck.kind:
        return Detailed(units.UNKNOWN, "")
    detail = f"  {bottleneck.confidence}"
    if roofline is not None and roofline.efficiency is not None:
        reached = units.percent(roofline.efficiency)
        detail += f", at {'at least ' * roofline.at_least}{reached} of this machine's roofs"
    return Detailed(bottleneck.kind, detail)


def _peak(memory: Memory) -> Detailed:
    place = peak_place(memory)
    return Detailed(units.size(memory.peak), f"  {place}" * bool(place))
