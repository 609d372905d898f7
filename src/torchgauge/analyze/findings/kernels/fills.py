"""Memory that is filled with zeros or another value."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, operators_above
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name


def _find(evidence: Evidence) -> Iterator[Finding]:
    fills = [
        piece
        for piece in evidence.pieces
        if piece.category == "fill" and piece.node.row.phase != "zero_grad"
    ]
    time = evidence.within(sum(piece.time for piece in fills))
    if share(time, evidence.time) < NOTICEABLE:
        return
    times: dict[str, float] = {}
    for piece in fills:
        around = [piece.node, *operators_above(piece.node)]
        names = [base_name(node.name) for node in around if node.name.startswith("aten::")]
        name = names[-1] if names else piece.node.name
        times[name] = times.get(name, 0.0) + piece.time
    most = max(times, key=lambda name: times[name])
    yield Finding(
        id="fills",
        severity=severity(share(time, evidence.time)),
        title=f"Filling memory takes {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)}, {units.time(times[most])} of it by {most[:60]}.",
        remedy="torch.empty where all of it is written anyway; make constants once, outside of "
        "the step.",
        time=time,
        worth=time,
        search=most,
        view="tree",
    )


RULE = Rule(
    "fills",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/torch.empty.html",
)
