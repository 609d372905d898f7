"""A server whose memory grows for as long as it is under load."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

MIN_READINGS = 12
NOTABLE = 0.1  # of the memory at first
LEAST = 50_000_000  # bytes


def _find(evidence: Evidence) -> Iterator[Finding]:
    for name, level in reversed(evidence.levels):
        use = level.server
        if use is None or len(use.memory) < MIN_READINGS:
            continue
        # The first quarter is warm-up; of the others each must lie above the one before.
        quarter = len(use.memory) // 4
        parts = [use.memory[quarter * part : quarter * (part + 1)] for part in (1, 2, 3)]
        growth = min(parts[2]) - max(parts[0])
        rises = max(parts[0]) < min(parts[1]) and max(parts[1]) < min(parts[2])
        if not rises or growth < max(LEAST, NOTABLE * max(parts[0])):
            continue
        seconds = use.time[3 * quarter] - use.time[2 * quarter - 1]
        yield Finding(
            id="memory-growth",
            severity="warning",
            title=f"The server's memory grew by {units.size(growth, 3)} at {name}",
            evidence=f"From {units.size(max(parts[0]), 3)} to {units.size(max(parts[2]), 3)} in "
            f"{units.time(seconds, 3)} of a constant load, after warm-up.",
            remedy="Something is kept with each request: caches without a limit, results that are "
            "still referred to. A longer --for tells whether it ends.",
        )
        return


RULE = Rule("memory-growth", _find)
