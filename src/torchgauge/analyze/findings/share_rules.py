"""Where the time goes, and what is far from the roofs."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, layer_name
from torchgauge.analyze.findings.rule import Rule
from torchgauge.analyze.work.roof_quality import shortcomings
from torchgauge.records.finding import Finding
from torchgauge.records.profile import Profile
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.node import Node


def _find_hottest_operator(evidence: Evidence) -> Iterator[Finding]:
    """Find the operator that takes most of the time."""
    if evidence.tree is None or evidence.rank is not None:
        return
    times = {name: _own_time(evidence, nodes) for name, nodes in evidence.operators.items()}
    hottest = max(times, key=lambda name: times[name], default=None)
    if hottest is None or not times[hottest]:
        return
    time = times[hottest]
    nodes = evidence.operators[hottest]
    calls = sum(node.calls for node in nodes if not tables.repeats_parent(node))
    yield Finding(
        id="hottest-operator",
        severity="info",
        title=f"{hottest} takes {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time, 3)} of a step in {calls:,} call{'s' * (calls != 1)}, without "
        "what it calls.",
        time=time,
        search=hottest,
        view="tree",
    )


def _own_time(evidence: Evidence, operators: list[Node]) -> float:
    """Return their seconds on the device, if the step has one, without what they call."""
    assert evidence.tree is not None  # noqa: S101 - there are operators
    on_device = evidence.tree.root.device_time is not None
    times = [node.device_time_self if on_device else node.host_time_self for node in operators]
    return sum(time or 0.0 for time in times)


HOTTEST_OPERATOR = Rule("hottest-operator", _find_hottest_operator)


def _find_widest_layer(evidence: Evidence) -> Iterator[Finding]:
    """Find the layer that calls no other and takes most of the time."""
    if not evidence.leaves or evidence.rank is not None:
        return
    layer = max(evidence.leaves, key=lambda node: node.time or 0.0)
    time = layer.time or 0.0
    kind = f" ({layer.row.type})" if layer.row.type else ""
    yield Finding(
        id="widest-layer",
        severity="info",
        title=f"{layer_name(layer)} takes {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time, 3)} of {units.time(evidence.time, 3)}: the longest of "
        f"{len(evidence.leaves):,} layers{kind}.",
        time=time,
        path=layer.path,
        node=layer.index,
        view="tree",
    )


WIDEST_LAYER = Rule("widest-layer", _find_widest_layer)


# A layer's time is out of proportion from so many times its share of the work.
SHARE_RATIO = 4.0


def _find_out_of_proportion(evidence: Evidence) -> Iterator[Finding]:
    """Find a type of layer that takes far more of the time than of the work."""
    nodes = evidence.nodes
    work = nodes[0].flops if nodes else None
    if not work:
        return
    by_type: dict[str, list[Node]] = {}
    for layer in evidence.leaves:
        if not layer.at_least:
            by_type.setdefault(layer.row.type, []).append(layer)
    outliers = []
    for kind, layers in by_type.items():
        time = sum(layer.time or 0.0 for layer in layers)
        work_share = sum(layer.flops or 0 for layer in layers) / work
        if time / evidence.time > SHARE_RATIO * work_share:
            outliers.append((time, work_share, kind))
    if not outliers:
        return
    time, work_share, kind = max(outliers)
    layers = by_type[kind]
    longest = max(layers, key=lambda layer: layer.time or 0.0)
    yield Finding(
        id="out-of-proportion",
        severity="info",
        title=f"{kind} takes {units.percent(time / evidence.time)} of the time for "
        f"{units.percent(work_share)} of the FLOPs",
        evidence=f"{len(layers):,} layer{'s' * (len(layers) != 1)}; the longest is {longest.path}, "
        f"{units.time(longest.time, 3)}. Time that is not arithmetic is traffic or overhead.",
        time=time,
        path=longest.path,
        node=longest.index,
        view="tree",
    )


OUT_OF_PROPORTION = Rule("out-of-proportion", _find_out_of_proportion)


def _find_farthest_from_roof(evidence: Evidence) -> Iterator[Finding]:
    """Find the layer that would gain most at the device's roofs."""
    gains = [
        ((layer.time or 0.0) * (1 - layer.efficiency), layer)
        for layer in evidence.leaves
        if layer.efficiency is not None and layer.efficiency < 1
    ]
    if not gains:
        return
    gain, layer = max(gains, key=lambda pair: pair[0])
    yield Finding(
        id="farthest-from-roof",
        severity="info",
        title=f"{layer_name(layer)} is farthest from the roofs",
        evidence=f"It takes {units.time(layer.time, 3)} and reaches "
        f"{units.percent(layer.efficiency)} of what the device can do"
        f"{_roof_caveat(evidence.profile)}: {units.time(gain, 3)}, "
        f"{units.percent(gain / evidence.time)} of the step, lie between.",
        time=gain,
        path=layer.path,
        node=layer.index,
        view="tree",
    )


def _roof_caveat(profile: Profile | None) -> str:
    """Return what makes the roofs too low, in brackets; empty if they are good."""
    roofline = None if profile is None else profile.roofline
    short = () if roofline is None else shortcomings(roofline.roofs)
    return f" (roofs: {', '.join(short)})" if short else ""


FARTHEST_FROM_ROOF = Rule("farthest-from-roof", _find_farthest_from_roof)


def _find_outside_layers(evidence: Evidence) -> Iterator[Finding]:
    """Find time that is in no layer."""
    buckets = [node for node in evidence.nodes if node.kind == "bucket"]
    if not buckets or evidence.rank is not None:
        return
    bucket = max(buckets, key=lambda node: node.time or 0.0)
    time = bucket.time or 0.0
    yield Finding(
        id="outside-layers",
        severity="info",
        title=f"{units.percent(time / evidence.time)} of the time is in no layer: {bucket.name}",
        evidence=f"{units.time(time, 3)} of {units.time(evidence.time, 3)}.",
        time=time,
        node=bucket.index,
        view="tree",
    )


OUTSIDE_LAYERS = Rule("outside-layers", _find_outside_layers)


RULES = (
    HOTTEST_OPERATOR,
    WIDEST_LAYER,
    OUT_OF_PROPORTION,
    FARTHEST_FROM_ROOF,
    OUTSIDE_LAYERS,
)
