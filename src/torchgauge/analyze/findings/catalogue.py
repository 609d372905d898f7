"""All findings of a record, checked against each other, what is worth most first."""

from __future__ import annotations

import msgspec

from torchgauge.analyze.findings.communication import (
    communication_bound,
    compute_stream,
    exposed_communication,
    last_collective,
    late_rank,
    slow_bandwidth,
    slow_collective,
    small_collectives,
    straggler,
    throttled_rank,
    uneven_exchange,
    uneven_work,
)
from torchgauge.analyze.findings.device import idle_device, idle_host
from torchgauge.analyze.findings.host import slow_tail, synchronisation
from torchgauge.analyze.findings.kernels import fp32_products, pageable_copies
from torchgauge.analyze.findings.layers import (
    farthest_from_roof,
    hottest_operator,
    out_of_proportion,
    outside_layers,
    widest_layer,
)
from torchgauge.analyze.findings.memory import largest_part
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.recording import launched_before, missing_ranks
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule
from torchgauge.records.finding import Finding
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.trace.trace import RankTrace, Trace

FILES = (
    straggler, late_rank, throttled_rank, uneven_work, uneven_exchange,
    slow_collective, slow_bandwidth, small_collectives, compute_stream, last_collective,
    communication_bound, exposed_communication,
    idle_host, idle_device,
    synchronisation, slow_tail,
    fp32_products, pageable_copies,
    hottest_operator, widest_layer, out_of_proportion, farthest_from_roof, outside_layers,
    largest_part,
    launched_before, missing_ranks,
)  # fmt: skip
RULES: dict[str, Rule] = {file.RULE.id: file.RULE for file in FILES}


def findings(record: Profile | Loop | RankTrace | Trace) -> tuple[Finding, ...]:
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
    return _once_a_node(sorted(_unexplained(applying), key=_order))


def _matters(finding: Finding, evidence: Evidence) -> bool:
    """Whether it is about enough of a step; of a trace each rule decides what is enough."""
    in_a_step = evidence.profile is not None or evidence.loop is not None
    return not in_a_step or finding.time is None or finding.time >= NOTICEABLE * evidence.time


def _documented(finding: Finding, rule: Rule, evidence: Evidence) -> Finding:
    """Return a finding with its rule's source, and with a remedy for the program's framework."""
    by_jax = evidence.rank is not None and evidence.rank.contents.recorder == "JAX"
    remedy = rule.jax_remedy if by_jax and rule.jax_remedy else finding.remedy
    return msgspec.structs.replace(finding, source=rule.source, remedy=remedy)


def _unexplained(applying: list[Finding]) -> list[Finding]:
    """Return the findings without the general ones whose time a particular one explains.

    A general one that is explained in part is worth only the rest.
    """
    explained: dict[str, float] = {}
    for finding in applying:
        for general in RULES[finding.id].explains:
            explained[general] = explained.get(general, 0.0) + (finding.time or 0.0)
    remaining = []
    for finding in applying:
        time = explained.get(finding.id, 0.0)
        if not time:
            remaining.append(finding)
        elif finding.time is not None and time < finding.time / 2:
            worth = None if finding.worth is None else max(finding.worth - time, 0.0)
            remaining.append(msgspec.structs.replace(finding, worth=worth))
    return remaining


def _order(finding: Finding) -> tuple[float, float]:
    return -(finding.worth or 0.0), -(finding.time or 0.0)


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
