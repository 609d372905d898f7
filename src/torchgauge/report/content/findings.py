"""The findings of a profile or a loop: a sentence each, by the share of the step they explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.work.roof_quality import shortcomings
from torchgauge.records.profile import Profile
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.node import Node
from torchgauge.records.timeline.tree import Tree

MAX_FINDINGS = 3
# A finding about a smaller share of a step, or of its memory, is left out.
MIN_WEIGHT = 0.05
# A layer's time is out of proportion from so many times its share of the work.
OUT_OF_PROPORTION = 4.0
SLOW_TAIL = 1.3
# With fewer calls the slowest one decides.
ENOUGH = 100


class Finding(NamedTuple):
    """A finding: `title` in a few words, `text` with its figures, `view` and `node` to go to.

    `weight` is the share of the step that it is about, less where it is about something else.
    `node` is a row of the tree, or None; `search` is what to look for in the tree.
    """

    title: str
    text: str
    weight: float
    view: str = "tree"
    node: int | None = None
    search: str = ""


class Timed(NamedTuple):
    """A tree's nodes and total seconds, none where either is unknown; a loop has no profile."""

    profile: Profile | None
    nodes: list[Node]
    total_time: float
    tree: Tree | None = None


def findings(record: Profile | Loop) -> list[Finding]:
    """Return the findings that matter most, at most three."""
    tree = record.tree
    nodes = [] if tree is None else tree.nodes
    total_time = nodes[0].time if nodes else None
    profile = record if isinstance(record, Profile) else None
    timed = Timed(profile, nodes if total_time else [], total_time or 0.0, tree)
    significant = [
        finding
        for rule in RULES
        if (finding := rule(timed)) is not None and finding.weight >= MIN_WEIGHT
    ]
    significant.sort(key=lambda finding: -finding.weight)
    best_by_node = {
        finding.node: finding for finding in reversed(significant) if finding.node is not None
    }  # once a node
    return [
        finding
        for finding in significant
        if finding.node is None or best_by_node[finding.node] is finding
    ][:MAX_FINDINGS]


def hottest_operator(timed: Timed) -> Finding | None:
    """Say which operator takes most of the time."""
    tree = timed.tree
    if tree is None:
        return None
    operators = tables.operators(tree, max_rows=1)
    clock = "CUDA" if "Self CUDA" in operators.columns else "CPU"
    first = next(iter(operators.rows()), None)
    percent = None if first is None else first[f"Self {clock} %"]
    if first is None or percent is None:
        return None
    share = percent / 100
    time, calls = units.time(first[f"Self {clock}"], 3), first["# of Calls"]
    name = first["Name"]
    return Finding(
        f"{name} takes {units.percent(share)} of the time",
        f"{time} of a step in {calls:,} call{'s' * (calls != 1)}, without what it calls.",
        share,
        search=name,
    )


def widest_layer(timed: Timed) -> Finding | None:
    """Say which layer that calls no other takes most of the time."""
    nodes, total_time = timed.nodes, timed.total_time
    leaves = [(node.time or 0.0, index) for index, node in enumerate(nodes) if is_leaf(node)]
    if not leaves:
        return None
    time, index = max(leaves)
    return Finding(
        f"{_named(nodes[index])} takes {units.percent(time / total_time)} of the time",
        f"{units.time(time, 3)} of {units.time(total_time, 3)}: the longest of "
        f"{len(leaves):,} layers ({nodes[index].row.type}).",
        time / total_time,
        node=index,
    )


def out_of_proportion(timed: Timed) -> Finding | None:
    """Say which type of layer takes far more of the time than of the work."""
    nodes, total_time = timed.nodes, timed.total_time
    work = nodes[0].flops if nodes else None
    if not work:
        return None
    by_type: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        if is_leaf(node) and not node.at_least:
            by_type.setdefault(node.row.type, []).append(index)
    outliers = []
    for kind, members in by_type.items():
        time = sum(nodes[index].time or 0.0 for index in members) / total_time
        share = sum(nodes[index].flops or 0 for index in members) / work
        if time > OUT_OF_PROPORTION * share:
            outliers.append(
                (time, share, kind, max(members, key=lambda index: nodes[index].time or 0.0))
            )
    if not outliers:
        return None
    time, share, kind, index = max(outliers)
    number = len(by_type[kind])
    return Finding(
        f"{kind} takes {units.percent(time)} of the time for {units.percent(share)} of the FLOPs",
        f"{number:,} layer{'s' * (number != 1)}; the longest is {nodes[index].path}, "
        f"{units.time(nodes[index].time, 3)}. Time that is not arithmetic is traffic or overhead.",
        time,
        node=index,
    )


def farthest_from_roof(timed: Timed) -> Finding | None:
    """Say which layer would gain most at the device's roofs."""
    profile, nodes, total_time, _ = timed
    gains = [
        ((node.time or 0.0) * (1 - node.efficiency), index)
        for index, node in enumerate(nodes)
        if is_leaf(node) and node.efficiency is not None and node.efficiency < 1
    ]
    if not gains:
        return None
    gain, index = max(gains)
    caveat = _roof_caveat(profile)
    return Finding(
        f"{_named(nodes[index])} is farthest from the roofs",
        f"It takes {units.time(nodes[index].time, 3)} and reaches "
        f"{units.percent(nodes[index].efficiency)} of what the device can do{caveat}: "
        f"{units.time(gain, 3)}, {units.percent(gain / total_time)} of the step, lie between.",
        gain / total_time,
        node=index,
    )


def _roof_caveat(profile: Profile | None) -> str:
    """Return what makes the roofs too low, in brackets; empty if they are good."""
    roofline = None if profile is None else profile.roofline
    short = () if roofline is None else shortcomings(roofline.roofs)
    return f" (roofs: {', '.join(short)})" if short else ""


def outside_layers(timed: Timed) -> Finding | None:
    """Say how much of the time is in no layer."""
    nodes, total_time = timed.nodes, timed.total_time
    buckets = [
        (node.time or 0.0, index) for index, node in enumerate(nodes) if node.kind == "bucket"
    ]
    if not buckets:
        return None
    time, index = max(buckets)
    return Finding(
        f"{units.percent(time / total_time)} of the time is in no layer: {nodes[index].name}",
        f"{units.time(time, 3)} of {units.time(total_time, 3)}.",
        time / total_time,
        node=index,
    )


def idle_device(timed: Timed) -> Finding | None:
    """Say how long a device had nothing to do."""
    uses = () if timed.tree is None else timed.tree.devices
    shares = [(use.idle / (use.busy + use.idle), use) for use in uses if use.busy + use.idle > 0]
    if not shares:
        return None
    share, use = max(shares, key=lambda pair: pair[0])
    return Finding(
        f"GPU {use.device or 0} is idle {units.percent(share)} of the step",
        f"{units.time(use.idle, 3)} without any kernel, {units.time(use.busy, 3)} with.",
        share,
    )


def largest_part_of_memory(timed: Timed) -> Finding | None:
    """Say what most of the peak is."""
    memory = None if timed.profile is None else timed.profile.memory
    if memory is None or not memory.peak:
        return None
    name, part = max(memory.parts.items(), key=lambda item: item[1])
    expected = name in ("parameters", "buffers")  # nobody is surprised that a model is there
    return Finding(
        f"{name.capitalize()}: {units.percent(part / memory.peak)} of the peak memory",
        f"{units.size(part)} of the {units.size(memory.peak)} alive at the peak.",
        part / memory.peak * (0.06 if expected else 0.4),
        view="memory",
    )


def slow_tail(timed: Timed) -> Finding | None:
    """Say that some calls take far longer than the median."""
    latency = None if timed.profile is None else timed.profile.latency
    if latency is None or len(latency.samples) < ENOUGH or latency.p99 < SLOW_TAIL * latency.median:
        return None
    times = latency.p99 / latency.median
    return Finding(
        f"The slowest calls take {units.significant(times, 2)}× the median",
        f"1 % of calls take {units.time(latency.p99)} or more, half of them at most "
        f"{units.time(latency.median)}.",
        min(1 - 1 / times, 0.5),
        view="latency",
    )


Rule = Callable[[Timed], Finding | None]
RULES: tuple[Rule, ...] = (
    hottest_operator,
    widest_layer,
    out_of_proportion,
    farthest_from_roof,
    outside_layers,
    idle_device,
    largest_part_of_memory,
    slow_tail,
)


def is_leaf(node: Node) -> bool:
    """Whether it is a layer that calls no other."""
    return node.kind == "layer" and not node.layers


def _named(layer: Node) -> str:
    """Return a layer's path; one that is a number says nothing, so its class stands behind it."""
    last = layer.path.rpartition(".")[2]
    return f"{layer.path} ({layer.row.type})" if last.isdecimal() else layer.path


def slowest_leaf(tree: Tree | None) -> tuple[Node, float] | None:
    """Return the layer that calls no other and takes most of the time, and its share of it."""
    if tree is None or not tree.root.time:
        return None
    leaves = [node for node in tree.root.walk() if is_leaf(node) and node.time]
    if not leaves:
        return None
    slowest = max(leaves, key=lambda node: node.time or 0.0)
    return slowest, (slowest.time or 0.0) / tree.root.time
