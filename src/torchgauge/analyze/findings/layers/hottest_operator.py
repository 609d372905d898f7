"""The operator that takes most of the time."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding
from torchgauge.records.timeline import tables


def _find(evidence: Evidence) -> Iterator[Finding]:
    if evidence.tree is None or evidence.rank is not None:
        return
    operators = tables.operators(evidence.tree, max_rows=1)
    clock = "CUDA" if "Self CUDA" in operators.columns else "CPU"
    first = next(iter(operators.rows()), None)
    percent = None if first is None else first[f"Self {clock} %"]
    if first is None or percent is None:
        return
    calls, time = first["# of Calls"], first[f"Self {clock}"]
    yield Finding(
        id="hottest-operator",
        severity="info",
        title=f"{first['Name']} takes {units.percent(percent / 100)} of the time",
        evidence=f"{units.time(time, 3)} of a step in {calls:,} call{'s' * (calls != 1)}, without "
        "what it calls.",
        time=percent / 100 * evidence.time,
        search=first["Name"],
        view="tree",
    )


RULE = Rule("hottest-operator", _find)
