"""The operator that takes most of the time."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.node import Node


def _find(evidence: Evidence) -> Iterator[Finding]:
    if evidence.tree is None or evidence.rank is not None:
        return
    times = {name: _own_time(evidence, nodes) for name, nodes in evidence.operators.items()}
    hottest = max(times, key=lambda name: times[name], default=None)
    if hottest is None or not times[hottest]:
        return
    time = times[hottest]
    nodes = evidence.operators[hottest]
    calls = sum(node.calls for node in nodes if not tables.repeats_parent(node))
    yield Finding(
        id="hottest-operator",
        severity="info",
        title=f"{hottest} takes {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time, 3)} of a step in {calls:,} call{'s' * (calls != 1)}, without "
        "what it calls.",
        time=time,
        search=hottest,
        view="tree",
    )


def _own_time(evidence: Evidence, operators: list[Node]) -> float:
    """Return their seconds on the device, if the step has one, without what they call."""
    assert evidence.tree is not None  # noqa: S101 - there are operators
    on_device = evidence.tree.root.device_time is not None
    times = [node.device_time_self if on_device else node.host_time_self for node in operators]
    return sum(time or 0.0 for time in times)


RULE = Rule("hottest-operator", _find)
