"""What of a profile matters most: each finding a sentence, by how much of the whole it explains."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.roof_quality import shortcomings
from torchgauge.model import tables
from torchgauge.model.profile import Profile
from torchgauge.model.tree import Node

MOST = 3
# A finding about less of a step, or of its memory, is none.
LEAST = 0.05
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
    """A profile with the nodes of its tree and the seconds of all; no nodes without either."""

    profile: Profile
    nodes: list[Node]
    whole: float


def findings(profile: Profile) -> list[Finding]:
    """Return the findings that matter most, at most three."""
    nodes = [] if profile.tree is None else profile.tree.nodes
    whole = nodes[0].time if nodes else None
    timed = Timed(profile, nodes if whole else [], whole or 0.0)
    found = [one for rule in RULES if (one := rule(timed)) is not None and one.weight >= LEAST]
    found.sort(key=lambda one: -one.weight)
    told = {one.node: one for one in reversed(found) if one.node is not None}  # once a node
    return [one for one in found if one.node is None or told[one.node] is one][:MOST]


def hottest_operator(timed: Timed) -> Finding | None:
    """Say which operator takes most of the time."""
    tree = timed.profile.tree
    if tree is None:
        return None
    found = tables.operators(tree)
    clock = "CUDA" if "Self CUDA" in found.columns else "CPU"
    first = next(iter(found.rows()), None)
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
    _, nodes, whole = timed
    leaves = [(node.time or 0.0, at) for at, node in enumerate(nodes) if _leaf(node)]
    if not leaves:
        return None
    time, at = max(leaves)
    return Finding(
        f"{nodes[at].path} takes {units.percent(time / whole)} of the time",
        f"{units.time(time, 3)} of {units.time(whole, 3)}: the longest of "
        f"{len(leaves):,} layers ({nodes[at].row.type}).",
        time / whole,
        node=at,
    )


def out_of_proportion(timed: Timed) -> Finding | None:
    """Say which type of layer takes far more of the time than of the work."""
    _, nodes, whole = timed
    work = nodes[0].flops if nodes else None
    if not work:
        return None
    by_type: dict[str, list[int]] = {}
    for at, node in enumerate(nodes):
        if _leaf(node) and not node.at_least:
            by_type.setdefault(node.row.type, []).append(at)
    found = []
    for kind, members in by_type.items():
        time = sum(nodes[at].time or 0.0 for at in members) / whole
        share = sum(nodes[at].flops or 0 for at in members) / work
        if time > OUT_OF_PROPORTION * share:
            found.append((time, share, kind, max(members, key=lambda at: nodes[at].time or 0.0)))
    if not found:
        return None
    time, share, kind, at = max(found)
    number = len(by_type[kind])
    return Finding(
        f"{kind} takes {units.percent(time)} of the time for {units.percent(share)} of the FLOPs",
        f"{number:,} layer{'s' * (number != 1)}; the longest is {nodes[at].path}, "
        f"{units.time(nodes[at].time, 3)}. Time that is not arithmetic is traffic or overhead.",
        time,
        node=at,
    )


def farthest_from_roof(timed: Timed) -> Finding | None:
    """Say which layer would gain most at the device's roofs."""
    profile, nodes, whole = timed
    gains = [
        ((node.time or 0.0) * (1 - node.efficiency), at)
        for at, node in enumerate(nodes)
        if _leaf(node) and node.efficiency is not None and node.efficiency < 1
    ]
    if not gains:
        return None
    gain, at = max(gains)
    return Finding(
        f"{nodes[at].path} is farthest from the roofs",
        f"It takes {units.time(nodes[at].time, 3)} and reaches "
        f"{units.percent(nodes[at].efficiency)} of what the device can do{_how(profile)}: "
        f"{units.time(gain, 3)}, {units.percent(gain / whole)} of the step, lie between.",
        gain / whole,
        node=at,
    )


def _how(profile: Profile) -> str:
    """Return what makes the roofs too low, in brackets; empty of good ones."""
    short = () if profile.roofline is None else shortcomings(profile.roofline.roofs)
    return f" (roofs: {', '.join(short)})" if short else ""


def outside_layers(timed: Timed) -> Finding | None:
    """Say how much of the time is in no layer."""
    _, nodes, whole = timed
    buckets = [(node.time or 0.0, at) for at, node in enumerate(nodes) if node.kind == "bucket"]
    if not buckets:
        return None
    time, at = max(buckets)
    return Finding(
        f"{units.percent(time / whole)} of the time is in no layer: {nodes[at].name}",
        f"{units.time(time, 3)} of {units.time(whole, 3)}.",
        time / whole,
        node=at,
    )


def idle_device(timed: Timed) -> Finding | None:
    """Say how long a device had nothing to do."""
    tree = timed.profile.tree
    uses = () if tree is None else tree.devices
    shares = [(use.idle / (use.busy + use.idle), use) for use in uses if use.busy + use.idle > 0]
    if not shares:
        return None
    share, use = max(shares, key=lambda one: one[0])
    return Finding(
        f"GPU {use.device or 0} is idle {units.percent(share)} of the step",
        f"{units.time(use.idle, 3)} without any kernel, {units.time(use.busy, 3)} with.",
        share,
    )


def largest_part_of_memory(timed: Timed) -> Finding | None:
    """Say what most of the peak is."""
    found = timed.profile.memory
    if found is None or not found.peak:
        return None
    name, part = max(found.parts.items(), key=lambda item: item[1])
    expected = name in ("parameters", "buffers")  # nobody is surprised that a model is there
    return Finding(
        f"{name.capitalize()}: {units.percent(part / found.peak)} of the peak memory",
        f"{units.size(part)} of the {units.size(found.peak)} alive at the peak.",
        part / found.peak * (0.06 if expected else 0.4),
        view="memory",
    )


def slow_tail(timed: Timed) -> Finding | None:
    """Say that some calls take far longer than the median."""
    found = timed.profile.latency
    if found is None or len(found.samples) < ENOUGH or found.p99 < SLOW_TAIL * found.median:
        return None
    times = found.p99 / found.median
    return Finding(
        f"The slowest calls take {units.significant(times, 2)}× the median",
        f"1 % of calls take {units.time(found.p99)} or more, half of them at most "
        f"{units.time(found.median)}.",
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


def _leaf(node: Node) -> bool:
    return node.kind == "layer" and not node.layers
