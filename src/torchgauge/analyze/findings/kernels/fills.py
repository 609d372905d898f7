"""Memory that is filled with zeros or another value."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, Execution, operators_above
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity, share
from torchgauge.analyze.work.categories import category
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name


def _find(evidence: Evidence) -> Iterator[Finding]:
    fills = [
        execution
        for execution in evidence.executions
        if execution.category == "fill"
        and execution.node.row.phase != "zero_grad"
        and category(_outermost(execution)) == "fill"
    ]
    time = evidence.within(sum(execution.time for execution in fills))
    if share(time, evidence.time) < NOTICEABLE:
        return
    times: dict[str, float] = {}
    for execution in fills:
        name = _outermost(execution)
        times[name] = times.get(name, 0.0) + execution.time
    largest_cause = max(times, key=lambda name: times[name])
    yield Finding(
        id="fills",
        severity=severity(share(time, evidence.time)),
        title=f"Filling memory takes {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)}, {units.time(times[largest_cause])} of it by "
        f"{largest_cause}.",
        remedy="torch.empty where all of it is written anyway; make constants once, outside of "
        "the step.",
        time=time,
        worth=time,
        search=largest_cause,
        view="tree",
    )


def _outermost(execution: Execution) -> str:
    """Return the operator that was called; others fill what they need, as a product its result."""
    around = [execution.node, *operators_above(execution.node)]
    names = [base_name(node.name) for node in around if node.name.startswith("aten::")]
    return names[-1] if names else ""


RULE = Rule(
    "fills",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/torch.empty.html",
)
