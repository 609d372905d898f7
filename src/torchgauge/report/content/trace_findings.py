"""Findings and warnings of a trace: the job's, one rank's, those of other ranks' files."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.trace import RankTrace, Trace

NAMED = 8  # ranks


def rank_findings(trace: Trace, rank: RankTrace) -> list[Finding]:
    """Return the job's findings, then one rank's, titled with the rank where there are several."""
    prefix = f"Rank {rank.rank}: " if len(trace.ranks) > 1 else ""
    own_findings = (
        msgspec.structs.replace(finding, title=prefix + finding.title) for finding in rank.findings
    )
    return [*trace.findings, *own_findings]


def rank_warnings(trace: Trace, rank: RankTrace) -> list[MeasurementWarning]:
    """Return the warnings of the job and of one rank, and those of the other ranks' files."""
    own_warnings = (*trace.warnings, *rank.warnings, *rank.tree.warnings)
    return list(dict.fromkeys([*own_warnings, *_other_rank_warnings(trace, rank)]))


def _other_rank_warnings(trace: Trace, rank: RankTrace) -> Iterator[MeasurementWarning]:
    ranks: dict[MeasurementWarning, list[int | None]] = {}
    for other in trace.ranks:
        for warning in other.warnings if other is not rank else ():
            ranks.setdefault(warning, []).append(other.rank)
    for warning, numbers in ranks.items():
        named = ", ".join(map(str, numbers[:NAMED])) + " …" * (len(numbers) > NAMED)
        prefix = f"Rank{'s' * (len(numbers) > 1)} {named}: "
        yield msgspec.structs.replace(warning, message=prefix + warning.message)
