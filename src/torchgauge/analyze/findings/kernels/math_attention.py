"""Torch's attention in its plain implementation, which keeps all scores."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node

_MATH = "aten::_scaled_dot_product_attention_math"


def _find(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.calls_of(_MATH)
    time = evidence.within(sum(_time(evidence, node) for node in calls))
    if share(time, evidence.time) < NOTICEABLE:
        return
    longest = max(calls, key=lambda node: _time(evidence, node))
    count = sum(node.calls for node in calls)
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Attention without a fused kernel takes {units.percent(time / evidence.time)} of "
        "the time",
        evidence=f"{units.time(time)} in {count:,} call{'s' * (count != 1)} of "
        f"_scaled_dot_product_attention_math on {longest.row.shapes[:60] or 'unknown shapes'}.",
        remedy="with torch.nn.attention.sdpa_kernel([SDPBackend.FLASH_ATTENTION, "
        "SDPBackend.EFFICIENT_ATTENTION]): says in warnings why none fits (type, head size, "
        "mask, dropout).",
        node=longest,
    )


def _time(evidence: Evidence, node: Node) -> float:
    return (node.host_time if evidence.runs_on_host else node.device_time) or 0.0


RULE = Rule(
    "math-attention",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html",
    explains=("unfused-elementwise",),
)
