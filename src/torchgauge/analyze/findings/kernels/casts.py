"""Conversions between types, as autocast and layers with a type of their own make them."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, Execution, operators_above
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name

_FLOATS = {"float64", "float32", "bfloat16", "float16"}


def _find(evidence: Evidence) -> Iterator[Finding]:
    casts = [execution for execution in evidence.executed("copy") if _is_cast(execution)]
    time = evidence.within(sum(execution.time for execution in casts))
    if share(time, evidence.time) < NOTICEABLE or not _mixes_types(evidence):
        return
    by_layer: dict[str, float] = {}
    for execution in casts:
        by_layer[execution.node.path] = by_layer.get(execution.node.path, 0.0) + execution.time
    layer = max(by_layer, key=lambda path: by_layer[path])
    calls = sum(execution.node.calls for execution in casts)
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Conversions between types take {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)} in {calls:,} copies"
        + (f", {units.time(by_layer[layer])} of it in {layer}." if layer else "."),
        remedy="Keep weights and activations in one type (model.to(torch.bfloat16) for inference, "
        "one autocast around the whole forward pass), or fuse the casts: torch.compile.",
        path=layer,
        search="aten::_to_copy",
    )


def _is_cast(execution: Execution) -> bool:
    """Whether it copies to another type, not to another device or layout alone."""
    if "nocast" in execution.node.name:
        return False
    kernel = execution.node.row.kernel
    if kernel is not None and kernel.work != "kernel":
        return False
    above = (base_name(operator.name) for operator in operators_above(execution.node))
    return "aten::_to_copy" in above


def _mixes_types(evidence: Evidence) -> bool:
    """Whether operators compute in two types, as far as is known: a copy may change a layout."""
    cost = None if evidence.profile is None else evidence.profile.cost
    return cost is None or len(_FLOATS & {row.dtype for row in cost.rows}) > 1


RULE = Rule(
    "casts",
    _find,
    source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    jax_remedy="Keep weights and activations in one type; one jax.jit around them fuses the rest.",
)
