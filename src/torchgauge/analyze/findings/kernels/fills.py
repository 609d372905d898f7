"""Memory that is filled with zeros or another value."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, Execution, operators_above
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.analyze.work.categories import category
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name


def _find(evidence: Evidence) -> Iterator[Finding]:
    fills = [
        execution
        for execution in evidence.executed("fill")
        if execution.node.row.phase != "zero_grad" and _is_called(execution)
    ]
    time = evidence.within(sum(execution.time for execution in fills))
    if share(time, evidence.time) < NOTICEABLE:
        return
    times: dict[str, float] = {}
    for execution in fills:
        name = _outermost(execution) or "kernels without an operator"
        times[name] = times.get(name, 0.0) + execution.time
    largest_cause = max(times, key=lambda name: times[name])
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Filling memory takes {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)}, {units.time(times[largest_cause])} of it by "
        f"{largest_cause}.",
        remedy="torch.empty where all of it is written anyway; make constants once, outside of "
        "the step.",
        search=largest_cause if largest_cause.startswith("aten::") else "",
    )


def _is_called(execution: Execution) -> bool:
    """Whether the program fills: other operators fill what they need, as a product its result.

    Without any operator a memory set may be a library's.
    """
    operator = _outermost(execution)
    kernel = execution.node.row.kernel
    is_set = kernel is not None and kernel.work == "memory set"
    return category(operator) == "fill" if operator else not is_set


def _outermost(execution: Execution) -> str:
    """Return the operator of torch that was called; "" where none is known."""
    around = [execution.node, *operators_above(execution.node)]
    names = [base_name(node.name) for node in around if node.name.startswith("aten::")]
    return names[-1] if names else ""


RULE = Rule(
    "fills",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/torch.empty.html",
)
