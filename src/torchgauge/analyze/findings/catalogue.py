"""All findings of a record, checked against each other, what is worth most first."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import msgspec

from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, rules_of
from torchgauge.records.finding import Finding
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.serving.serving import Serving
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.trace.trace import RankTrace, Trace

# Each has a file of rules; of findings that are worth as much the order decides.
_SUBJECTS = """
    rank communication device input host operator fusion conversion product occupancy transfer layer
    share kernel memory watched generation load server recording
"""
FILES = [importlib.import_module(f"{__package__}.{name}_rules") for name in _SUBJECTS.split()]
RULES: dict[str, Rule] = {rule.id: rule for file in FILES for rule in rules_of(file)}


def findings(
    record: Profile | Loop | RankTrace | Trace | Generation | Serving,
) -> tuple[Finding, ...]:
    """Return the findings of a record, what is worth most first.

    Of a trace with several ranks those about the job alone; each rank has its own.
    """
    evidence = Evidence.from_record(record)
    applying = [
        _documented(finding, rule, evidence)
        for rule in RULES.values()
        for finding in rule.find(evidence)
        if _matters(finding, evidence)
    ]
    ordered = sorted(
        _unexplained(applying), key=lambda finding: RULES[finding.id].place(finding, evidence)
    )
    return _once_a_node(list(_of_all_devices(ordered, evidence)))


def _matters(finding: Finding, evidence: Evidence) -> bool:
    """Whether it is about enough of a step; of a trace each rule decides what is enough."""
    of_trace = evidence.rank is not None or evidence.job is not None
    return of_trace or finding.time is None or finding.time >= NOTICEABLE * evidence.time


def _documented(finding: Finding, rule: Rule, evidence: Evidence) -> Finding:
    """Return a finding with its rule's source, and with a remedy for the program's framework."""
    remedy = rule.jax_remedy if evidence.by_jax and rule.jax_remedy else finding.remedy
    return msgspec.structs.replace(finding, source=rule.source, remedy=remedy)


def _unexplained(applying: list[Finding]) -> Iterator[Finding]:
    """Return the findings without the general ones whose time a particular one explains.

    A general one that is explained in part is worth only the rest.
    """
    explained: dict[str, float] = {}
    for finding in applying:
        for general in RULES[finding.id].explains:
            explained[general] = explained.get(general, 0.0) + (finding.time or 0.0)
    for finding in applying:
        time = explained.get(finding.id, 0.0)
        if finding.id not in explained:
            yield finding
        elif finding.time is not None and time < finding.time / 2:
            worth = None if finding.worth is None else max(finding.worth - time, 0.0)
            yield msgspec.structs.replace(finding, worth=worth)


def _of_all_devices(ordered: list[Finding], evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding of those that a rule has of several devices, that of the worst."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in ordered:
        if finding.device is not None:
            by_rule.setdefault(finding.id, []).append(finding)
    all_devices = len({time.device for time in evidence.device_times})
    for finding in ordered:
        same_rule = by_rule.get(finding.id, [finding])
        devices = len({other.device for other in same_rule})
        if devices > 1 and finding is same_rule[0]:
            title = f"{finding.title} (alike on {devices} of {all_devices} devices)"
            yield msgspec.structs.replace(finding, title=title)
        elif devices == 1:
            yield finding


def _once_a_node(ordered: list[Finding]) -> tuple[Finding, ...]:
    first_by_node: dict[int, Finding] = {}
    for finding in ordered:
        if finding.node is not None:
            first_by_node.setdefault(finding.node, finding)
    return tuple(
        finding
        for finding in ordered
        if finding.node is None or first_by_node[finding.node] is finding
    )
