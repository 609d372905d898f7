"""Dropout or batch statistics in a run that trains nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, operators_above
from torchgauge.analyze.findings.rule import Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node, base_name

_TRAINING = ("backward", "recompute", "optimizer", "zero_grad")
_DROPOUT = ("aten::native_dropout", "aten::bernoulli_")
_STATISTICS = re.compile(r"bn_fw_tr|batch_norm_collect_statistics|BatchNormFwdTrain")
# Of a layer or two nobody asks; an own seed or noise has these operators too.
NOTED = 0.005


def _find(evidence: Evidence) -> Iterator[Finding]:
    if any(node.row.phase in _TRAINING or "Backward" in node.name for node in evidence.nodes):
        return
    dropped = [node for node in evidence.calls_of(*_DROPOUT) if _drops_out(node)]
    statistics = [calls.node for calls in evidence.kernels if _STATISTICS.search(calls.name)]
    time = sum(_time(evidence, node) for node in dropped + statistics)
    if share(time, evidence.time) < NOTED:
        return
    longest = max(dropped + statistics, key=lambda node: _time(evidence, node))
    count = sum(node.calls for node in dropped + statistics)
    kinds = " and ".join(
        text for text, nodes in (("dropout", dropped), ("batch statistics", statistics)) if nodes
    )
    yield Finding(
        id="training-mode",
        severity="warning",
        title=f"The model runs in training mode ({kinds}), and nothing is trained",
        evidence=f"{units.time(time)} in {count:,} call{'s' * (count != 1)}, "
        "and no backward pass in what was recorded"
        + (f"; the longest is in {longest.path}." if longest.path else "."),
        remedy="model.eval() before inference; its results are random without it. In "
        "functional.dropout give training=self.training.",
        time=evidence.within(time),
        worth=evidence.within(time),
        path=longest.path,
        node=longest.index,
        view="tree",
    )


def _drops_out(node: Node) -> bool:
    """Whether an operator draws the mask of a dropout."""
    return any(base_name(above.name) == "aten::dropout" for above in operators_above(node))


def _time(evidence: Evidence, node: Node) -> float:
    return (node.host_time if evidence.runs_on_host else node.device_time) or 0.0


RULE = Rule(
    "training-mode",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html"
    "#torch.nn.Module.eval",
)
