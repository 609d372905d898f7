"""A type of layer that takes far more of the time than of the work."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node

# A layer's time is out of proportion from so many times its share of the work.
OUT_OF_PROPORTION = 4.0


def _find(evidence: Evidence) -> Iterator[Finding]:
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
        if time / evidence.time > OUT_OF_PROPORTION * work_share:
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


RULE = Rule("out-of-proportion", _find)
