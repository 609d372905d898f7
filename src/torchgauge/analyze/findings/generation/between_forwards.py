"""Time from one decode forward to the next, in which tokens are chosen and Python runs."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.generation.decode_time import decode_count, shape
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule, severity, share
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    cell = evidence.generation_cell
    if cell is None or cell.between is None or cell.step is None or cell.assisted:
        return
    between, forward = cell.between.value, cell.step.value
    time = evidence.within(between * decode_count(cell))
    part = share(between, between + forward)
    yield Finding(
        id="between-forwards",
        severity=severity(share(time, evidence.time)),
        title=f"{units.percent(part)} of a decode step is between forwards",
        evidence=f"{units.time(between)} after a forward of {units.time(forward)} {shape(cell)}: "
        "choosing the token, stopping rules, Python.",
        remedy="Fewer logits processors and stopping rules, no streamer, greedy decoding where it "
        "will do; more prompts in a batch share this time.",
        time=time,
        worth=time,
    )


RULE = Rule(
    "between-forwards",
    _find,
    source="https://huggingface.co/docs/transformers/generation_strategies",
)
