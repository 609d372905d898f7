"""The layer that calls no other and takes most of the time."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, layer_name
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
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


RULE = Rule("widest-layer", _find)
