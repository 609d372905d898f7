"""Gradients of embeddings with a row for every entry of the table."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node, base_name

_DENSE = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")


def _find(evidence: Evidence) -> Iterator[Finding]:
    gradients = [node for node in evidence.nodes if base_name(node.name) in _DENSE]
    time = evidence.within(sum(_time(evidence, node) for node in gradients))
    if share(time, evidence.time) < NOTICEABLE:
        return
    longest = max(gradients, key=lambda node: _time(evidence, node))
    calls = sum(node.calls for node in gradients)
    yield Finding(
        id="dense-embedding-gradient",
        severity=severity(share(time, evidence.time)),
        title=f"Dense gradients of embeddings take {units.percent(time / evidence.time)} of the "
        "time",
        evidence=f"{units.time(time)} in {calls:,} call{'s' * (calls != 1)} of {longest.name}: a "
        "row for every entry of the table, and the optimizer reads them all.",
        remedy="torch.nn.Embedding(…, sparse=True) with torch.optim.SparseAdam or SGD, if few "
        "entries occur in a batch.",
        time=time,
        worth=time,
        path=longest.path,
        node=longest.index,
        view="tree",
    )


def _time(evidence: Evidence, node: Node) -> float:
    return (node.host_time if evidence.runs_on_host else node.device_time) or 0.0


RULE = Rule(
    "dense-embedding-gradient",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
    explains=("fills",),
)
