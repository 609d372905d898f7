"""Activations that are computed a second time for the backward pass."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    recomputed = [
        execution for execution in evidence.executions if execution.node.row.phase == "recompute"
    ]
    time = evidence.within(sum(execution.time for execution in recomputed))
    if share(time, evidence.time) < NOTICEABLE:
        return
    by_layer: dict[str, float] = {}
    for execution in recomputed:
        by_layer[execution.node.path] = by_layer.get(execution.node.path, 0.0) + execution.time
    layer = max(by_layer, key=lambda path: by_layer[path])
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Activation checkpointing takes {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)} of the forward pass run again in the backward pass"
        + (f", {units.time(by_layer[layer])} of it in {layer}." if layer else "."),
        remedy="If memory allows, checkpoint fewer layers, or keep what is dear to compute: "
        "context_fn=functools.partial(create_selective_checkpoint_contexts, […]).",
        path=layer,
    )


RULE = Rule(
    "recomputation",
    _find,
    source="https://docs.pytorch.org/docs/stable/checkpoint.html",
)
