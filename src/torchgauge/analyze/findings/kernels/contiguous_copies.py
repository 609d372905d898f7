"""Copies made only because a view was not contiguous."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, Execution, operators_above
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name

_CAUSES = frozenset({"aten::contiguous", "aten::reshape", "aten::flatten"})
# These arrange what they need themselves, or copy for another reason.
_OTHER_CAUSES = frozenset({
    "aten::matmul", "aten::einsum", "aten::_to_copy", "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_attention_math",
})  # fmt: skip


def _find(evidence: Evidence) -> Iterator[Finding]:
    by_layer: dict[str, list[Execution]] = {}
    for execution in evidence.executed("copy"):
        if _is_rearranged(execution):
            by_layer.setdefault(execution.node.path, []).append(execution)
    copies = [execution for executions in by_layer.values() for execution in executions]
    time = evidence.within(sum(execution.time for execution in copies))
    if share(time, evidence.time) < NOTICEABLE:
        return
    layer = max(by_layer, key=lambda path: sum(execution.time for execution in by_layer[path]))
    longest = max(copies, key=lambda execution: execution.time)
    calls = sum(execution.node.calls for execution in copies)
    shapes = operators_above(longest.node)[-1].row.shapes
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Copies that only make a view contiguous take "
        f"{units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)} in {calls:,} copies by "
        f"{', '.join(sorted({_cause(execution) for execution in copies}))}"
        + (f"; the longest on {shapes[:60]}." if shapes else "."),
        remedy="Leave out .contiguous() where the next operator takes strides (attention and "
        "products do), choose an order of dimensions that needs no transpose before "
        ".reshape(), or torch.compile.",
        path=layer,
        search="aten::contiguous",
    )


def _is_rearranged(execution: Execution) -> bool:
    """Whether an operator that copies only what is not contiguous makes it for the user."""
    names = {base_name(operator.name) for operator in operators_above(execution.node)}
    return bool(names & _CAUSES) and not names & _OTHER_CAUSES


def _cause(execution: Execution) -> str:
    names = [base_name(operator.name) for operator in operators_above(execution.node)]
    return next(name for name in names if name in _CAUSES)


RULE = Rule(
    "contiguous-copies",
    _find,
    source="https://docs.pytorch.org/docs/stable/tensor_view.html",
    jax_remedy="Choose an order of dimensions that needs no transpose.",
)
