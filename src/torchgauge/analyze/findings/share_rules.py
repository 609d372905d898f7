"""Where the time goes, and what is far from the roofs."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, layer_name
from torchgauge.analyze.findings.rule import MAJORITY, rule
from torchgauge.analyze.work.roof_quality import shortcomings
from torchgauge.records.finding import Finding
from torchgauge.records.profile import Profile
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.node import Node


@rule("hottest-operator")
def hottest_operator(evidence: Evidence) -> Iterator[Finding]:
    """Find the operator that takes most of the time; of a recording where no device computes.

    Where little of its window is recorded, that is what is said of it.
    """
    if evidence.tree is None or (evidence.rank is not None and evidence.kernels):
        return
    times = {name: _own_time(evidence, nodes) for name, nodes in evidence.operators.items()}
    hottest = max(times, key=lambda name: times[name], default=None)
    if hottest is None or not times[hottest]:
        return
    recorded = evidence.tree.root.host_time or 0.0
    if evidence.rank is not None and recorded < (1 - MAJORITY) * evidence.time:
        unrecorded = evidence.time - recorded
        yield hottest_operator.finding(
            title=f"Nothing runs that was recorded for at least {evidence.part(unrecorded)}",
            evidence=f"{units.time(recorded, 3)} of {units.time(evidence.time, 3)} are operators "
            f"and ranges, the longest {hottest}; else Python runs, or waits.",
            remedy="Record with with_stack=True to see its functions.",
            time=unrecorded,
        )
        return
    time = times[hottest]
    nodes = evidence.operators[hottest]
    calls = sum(node.calls for node in nodes if not tables.repeats_parent(node))
    yield hottest_operator.finding(
        title=f"{hottest} takes {evidence.part(time)}",
        evidence=f"{units.time(time, 3)} in {calls:,} call{'s' * (calls != 1)}, without "
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


@rule("widest-layer", order="time")
def widest_layer(evidence: Evidence) -> Iterator[Finding]:
    """Find the layer that calls no other and takes most of the time."""
    if not evidence.leaves or evidence.rank is not None:
        return
    layer = max(evidence.leaves, key=lambda node: node.time or 0.0)
    time = layer.time or 0.0
    kind = f" ({layer.row.type})" if layer.row.type else ""
    yield widest_layer.finding(
        title=f"{layer_name(layer)} takes {evidence.part(time)}",
        evidence=f"{units.time(time, 3)} of {units.time(evidence.time, 3)}: the longest of "
        f"{len(evidence.leaves):,} layers{kind}.",
        time=time,
        node=layer,
        view="tree",
    )


# A layer's time is out of proportion from so many times its share of the work.
SHARE_RATIO = 4.0
LEAST_SHARE = 0.01  # of the time: what takes less is of no matter


@rule("out-of-proportion")
def out_of_proportion(evidence: Evidence) -> Iterator[Finding]:
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
        if time / evidence.time > max(SHARE_RATIO * work_share, LEAST_SHARE):
            outliers.append((time, work_share, kind))
    if not outliers:
        return
    time, work_share, kind = max(outliers)
    layers = by_type[kind]
    longest = max(layers, key=lambda layer: layer.time or 0.0)
    yield out_of_proportion.finding(
        title=f"{kind} takes {evidence.part(time)} for {units.percent(work_share)} of the FLOPs",
        evidence=f"{len(layers):,} layer{'s' * (len(layers) != 1)}; the longest is {longest.path}, "
        f"{units.time(longest.time, 3)}. Time that is not arithmetic is traffic or overhead.",
        time=time,
        node=longest,
        view="tree",
    )


@rule("farthest-from-roof")
def farthest_from_roof(evidence: Evidence) -> Iterator[Finding]:
    """Find the layer that would gain most at the device's roofs."""
    gains = [
        ((layer.time or 0.0) * (1 - layer.efficiency), layer)
        for layer in evidence.leaves
        if layer.efficiency is not None and layer.efficiency < 1
    ]
    if not gains:
        return
    gain, layer = max(gains, key=lambda pair: pair[0])
    yield farthest_from_roof.finding(
        title=f"{layer_name(layer)} is farthest from the roofs",
        evidence=f"It takes {units.time(layer.time, 3)} and reaches "
        f"{units.percent(layer.efficiency)} of what the device can do"
        f"{_roof_caveat(evidence.profile)}: {units.time(gain, 3)}, "
        f"{units.percent(gain / evidence.time)} of the step, lie between.",
        time=gain,
        node=layer,
        view="tree",
    )


def _roof_caveat(profile: Profile | None) -> str:
    """Return what makes the roofs too low, in brackets; empty if they are good."""
    roofline = None if profile is None else profile.roofline
    short = () if roofline is None else shortcomings(roofline.roofs)
    return f" (roofs: {', '.join(short)})" if short else ""


@rule("outside-layers")
def outside_layers(evidence: Evidence) -> Iterator[Finding]:
    """Find time that is in no layer."""
    buckets = [node for node in evidence.nodes if node.kind == "bucket"]
    if not buckets or evidence.rank is not None:
        return
    bucket = max(buckets, key=lambda node: node.time or 0.0)
    time = bucket.time or 0.0
    yield outside_layers.finding(
        title=f"{evidence.part(time)} is in no layer: {bucket.name}",
        evidence=f"{units.time(time, 3)} of {units.time(evidence.time, 3)}.",
        time=time,
        node=bucket,
        path="",
        view="tree",
    )
