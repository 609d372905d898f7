"""What stands out in a trace, and its warnings: of the job, of one rank, of the others' files."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from torchgauge.model.finding import Finding
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.trace import RankTrace, Trace

NAMED = 8  # ranks


def standing_out(trace: Trace, one: RankTrace) -> list[Finding]:
    """Return the job's findings, then those of one rank, which they name where there are more."""
    of_rank = f"Rank {one.rank}: " if len(trace.ranks) > 1 else ""
    mine = (msgspec.structs.replace(each, title=of_rank + each.title) for each in one.findings)
    return [*trace.findings, *mine]


def warned(trace: Trace, one: RankTrace) -> list[MeasurementWarning]:
    """Return the warnings of the job and of one rank, and how the files of others were read."""
    mine = (*trace.warnings, *one.warnings, *one.tree.warnings)
    return list(dict.fromkeys([*mine, *_of_others(trace, one)]))


def _of_others(trace: Trace, one: RankTrace) -> Iterator[MeasurementWarning]:
    ranks: dict[MeasurementWarning, list[int | None]] = {}
    for other in trace.ranks:
        for each in other.warnings if other is not one else ():
            ranks.setdefault(each, []).append(other.rank)
    for each, numbers in ranks.items():
        named = ", ".join(map(str, numbers[:NAMED])) + " …" * (len(numbers) > NAMED)
        of = f"Rank{'s' * (len(numbers) > 1)} {named}: "
        yield msgspec.structs.replace(each, message=of + each.message)
