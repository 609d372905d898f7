"""Most of a step on the CPU is in operators so short that calling them is most of their time."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule, severity, share
from torchgauge.records.finding import Finding

# Seconds: dispatch, allocation and the call from Python take 1 to 5 µs of each.
SMALL = 10e-6
# Fewer are no matter of their number.
MANY = 100
# The share of the step from which it is what limits the step.
MOST = 0.4


def _find(evidence: Evidence) -> Iterator[Finding]:
    nodes = evidence.nodes
    if not nodes or nodes[0].device_time is not None:
        return
    small = [
        node
        for node in nodes
        if node.kind == "operator"
        and node.name.startswith("aten::")
        and node.row.phase != "optimizer"
        and node.calls
        and (node.host_time_self or 0.0) < SMALL * node.calls
    ]
    calls = sum(node.calls for node in small)
    time = sum(node.host_time_self or 0.0 for node in small)
    if calls < MANY or share(time, evidence.time) < MOST:
        return
    longest = max(small, key=lambda node: node.host_time_self or 0.0)
    yield Finding(
        id="small-operators",
        severity=severity(share(time, evidence.time)),
        title=f"{calls:,} operators of less than 10 µs take {units.percent(time / evidence.time)} "
        f"of the {'step' if evidence.rank is None else 'window'}: calling them is most of it",
        evidence=f"{units.time(time)}, {units.time(time / calls)} each; {longest.calls:,} × "
        f"{longest.name} take {units.time(longest.host_time_self)}.",
        remedy="Fewer and larger ones: operators on whole tensors instead of a loop in Python, "
        "torch.compile, a larger batch.",
        time=time,
        worth=time,
        path=longest.path,
        node=longest.index,
        view="tree",
    )


RULE = Rule(
    "small-operators",
    _find,
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#fuse-operations",
)
