"""An optimizer that goes through its parameters one by one: the time is overhead of many calls."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.host.delay import delayed_by
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node, base_name

# Operators of a step: fewer are no loop over parameters.
MIN_CALLS = 20
# Seconds of one operator, on a busy machine too: in longer ones, as of a million elements, memory
# traffic is most of it.
SHORT = 50e-6
# One that multiplies matrices (Muon, Shampoo), or runs the model (L-BFGS), is not overhead alone.
_PRODUCTS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::conv2d"))
_BATCHED = ("aten::_foreach", "aten::_fused")


def _find(evidence: Evidence) -> Iterator[Finding]:
    operators = _operators(evidence)
    calls = sum(node.calls for node in operators)
    time = _time(evidence, operators)
    if time is None or share(time, evidence.time) < NOTICEABLE:
        return
    longest = max(operators, key=lambda node: node.host_time_self or 0.0)
    waits = "the device waits for it " if evidence.device_times else ""
    yield Finding(
        id="optimizer-loop",
        severity=severity(share(time, evidence.time)),
        title=f"The optimizer goes through its parameters one by one: {waits}"
        f"{units.percent(time / evidence.time)} of the {_scope(evidence)}",
        evidence=f"{calls:,} operators ({longest.calls:,} × {longest.name}), none for several "
        f"parameters at once: {units.time(time)}.",
        remedy="torch.optim.AdamW(…, fused=True), as Adam, SGD and Adagrad take it too; else "
        "foreach=True.",
        time=time,
        worth=time,
        node=longest.index,
        view="tree",
    )


def _scope(evidence: Evidence) -> str:
    return "window" if evidence.rank is not None else "step"


def _operators(evidence: Evidence) -> list[Node]:
    """Return the nodes of the optimizer's own operators, those in zero_grad left out."""
    return [
        node
        for node in evidence.nodes
        if node.kind == "operator"
        and node.row.phase == "optimizer"
        and base_name(node.name).startswith("aten::")
    ]


def _time(evidence: Evidence, operators: list[Node]) -> float | None:
    """Return what the loop costs, None where there is no loop."""
    calls = sum(node.calls for node in operators)
    names = {base_name(node.name) for node in operators}
    if calls < MIN_CALLS or names & _PRODUCTS or any(n.startswith(_BATCHED) for n in names):
        return None
    if evidence.rank is not None:
        delay = delayed_by(evidence, "optimizer loop")
        if delay is None or delay.waits or not _short(operators, calls):
            return None if delay is None or not delay.waits else delay.cost
        return delay.cost
    if not _short(operators, calls) or any(node.row.device for node in evidence.nodes):
        return None
    steps = [node for node in evidence.nodes if node.name.startswith("Optimizer.step#")]
    return sum(node.host_time or 0.0 for node in steps)


def _short(operators: list[Node], calls: int) -> bool:
    return sum(node.host_time_self or 0.0 for node in operators) < SHORT * calls


RULE = Rule(
    "optimizer-loop",
    _find,
    source="https://docs.pytorch.org/docs/stable/optim.html#default-optimizers",
    explains=("idle-host", "launch-bound", "outside-layers"),
)
