"""Elementwise operations in a row, each of which reads and writes whole tensors."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import (
    Evidence,
    Execution,
    calls_further,
    operators_above,
)
from torchgauge.analyze.findings.rule import Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name

# A share that fusing changes noticeably: half of it may remain.
NOTICEABLE_WHEN_FUSED = 0.2
# Fewer in a layer have nothing to be fused with but products, which takes other kernels.
CHAIN = 2
_PHASES = ("optimizer", "zero_grad")
_GENERATED = ("triton_", "cpp_fused_")


def _find(evidence: Evidence) -> Iterator[Finding]:
    if _is_compiled(evidence):
        return
    by_layer: dict[str, list[Execution]] = {}
    for execution in evidence.executed("elementwise", "copy", "layout"):
        if _is_elementwise(execution):
            by_layer.setdefault(execution.node.path, []).append(execution)
    chains = {
        path: executions
        for path, executions in by_layer.items()
        if sum(execution.node.calls for execution in executions) >= CHAIN
        and any(execution.category == "elementwise" for execution in executions)
    }
    time = evidence.within(
        sum(execution.time for executions in chains.values() for execution in executions)
    )
    if share(time, evidence.time) < NOTICEABLE_WHEN_FUSED:
        return
    calls = sum(execution.node.calls for executions in chains.values() for execution in executions)
    # What is in no layer has no place to look at: a layer with less goes first.
    longest = max(
        chains, key=lambda path: (path != "", sum(execution.time for execution in chains[path]))
    )
    by_time = sorted(chains[longest], key=lambda execution: -execution.time)
    operators = dict.fromkeys(filter(None, map(_operator, by_time)))
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Elementwise operations one by one take "
        f"{units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)} in {calls:,} calls, each of which reads and writes memory"
        + (f"; most in {longest}" if longest else "")
        + (f": {', '.join(list(operators)[:5])}." if operators else "."),
        remedy="torch.compile(model) makes one kernel of a chain.",
        path=longest,
    )


def _is_compiled(evidence: Evidence) -> bool:
    return any(execution.node.name.startswith(_GENERATED) for execution in evidence.executions)


def _is_elementwise(execution: Execution) -> bool:
    """Whether a compiler would make it part of its neighbours: concatenations and casts too."""
    if execution.node.row.phase in _PHASES or calls_further(execution.node):
        return False
    if execution.category == "elementwise":
        return True
    if execution.node.row.kernel is not None and execution.node.row.kernel.work != "kernel":
        return False
    if execution.category == "layout":
        return _operator(execution) == "aten::cat"
    operators = [base_name(operator.name) for operator in operators_above(execution.node)]
    return "aten::_to_copy" in operators


def _operator(execution: Execution) -> str:
    """Return the operator that ran it, "" where that is not known."""
    if execution.node.kind == "operator":
        return base_name(execution.node.name)
    above = operators_above(execution.node)
    return base_name(above[0].name) if above else ""


RULE = Rule(
    "unfused-elementwise",
    _find,
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#fuse-operations",
    jax_remedy="Put the whole step into one jax.jit: XLA makes one kernel of a chain.",
)
