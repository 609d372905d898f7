"""Products of one row, which wait for the weights to be read."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import (
    Evidence,
    Execution,
    operators_above,
    shapes_of,
)
from torchgauge.analyze.findings.rule import Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name

# Where they are most of the work, it is a decoder or a model that serves one request at a time.
DOMINANT_SHARE = 0.5
# The place of the operand whose rows are the batch's.
_OPERANDS = {"aten::mm": 0, "aten::addmm": 1, "aten::mv": None, "aten::addmv": None}


def _find(evidence: Evidence) -> Iterator[Finding]:
    products = [
        execution for execution in evidence.executed("matrix product") if _has_one_row(execution)
    ]
    time = evidence.within(sum(execution.time for execution in products))
    if share(time, sum(execution.time for execution in evidence.executions)) < DOMINANT_SHARE:
        return
    longest = max(products, key=lambda execution: execution.time)
    calls = sum(execution.node.calls for execution in products)
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Products of a single row take {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)} in {calls:,} calls "
        "that read each weight for two operations: memory bounds them, not arithmetic.",
        remedy="Several requests in one batch cost hardly more than one; else smaller weights "
        "(int8, int4 weights).",
        worth=None,
        node=longest.node,
    )


def _has_one_row(execution: Execution) -> bool:
    """Whether it is a product with a matrix of one row, by the shapes that its operator took."""
    around = [execution.node, *operators_above(execution.node)]
    operator = next((node for node in around if node.kind == "operator"), None)
    name = "" if operator is None else base_name(operator.name)
    if operator is None or name not in _OPERANDS:
        return False
    place = _OPERANDS[name]
    shapes = shapes_of(operator)
    if place is None:
        return True
    return len(shapes) > place and isinstance(shapes[place], list) and shapes[place][:1] == [1]


RULE = Rule(
    "single-row-products",
    _find,
    source="https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/"
    "index.html#understand-perf",
)
