"""Gradients that are filled with zeros in place of being dropped."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node, base_name

_ZERO = ("aten::zero_", "aten::_foreach_zero_")


def _find(evidence: Evidence) -> Iterator[Finding]:
    zeroed = [node for node in evidence.nodes if _zeroes(node) and not _zeroes(node.parent)]
    calls = sum(node.calls for node in zeroed)
    times = [node.host_time if evidence.runs_on_host else node.device_time for node in zeroed]
    time = evidence.within(sum(seconds or 0.0 for seconds in times))
    if share(time, evidence.time) < NOTICEABLE:
        return
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Filling gradients with zeros takes {units.percent(time / evidence.time)} of the "
        "time",
        evidence=f"{units.time(time)} in {calls:,} calls of {zeroed[0].name}; the backward pass "
        "adds to the zeros instead of writing.",
        remedy="optimizer.zero_grad(set_to_none=True), torch's default.",
        search="aten::zero_",
    )


def _zeroes(node: Node | None) -> bool:
    return node is not None and node.row.phase == "zero_grad" and base_name(node.name) in _ZERO


RULE = Rule(
    "zeroed-gradients",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
)
