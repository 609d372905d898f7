"""The last collective of each step, after the backward pass, beside which nothing computes."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding

# Of all exposed communication: else it is not the last one that matters.
MOSTLY = 0.5
# Of the rest: where nothing overlaps, the order of the buckets is not the cause.
OVERLAPS = 0.5


def _find(evidence: Evidence) -> Iterator[Finding]:
    """The gradients of the first layers are ready last: no backward pass is left to hide them."""
    rank = evidence.rank
    if rank is None or rank.exposed_last is None or len(rank.times) != 1:
        return
    if not any(node.row.phase == "backward" for node in evidence.nodes):
        return
    breakdown = rank.times[0].breakdown
    time = min(rank.exposed_last, breakdown.exposed_communication)
    other_time = sum(kind.time for kind in rank.collectives) - time
    other_exposed = sum(kind.exposed for kind in rank.collectives) - time
    if (
        share(time, breakdown.window) < NOTICEABLE
        or share(time, breakdown.exposed_communication) < MOSTLY
        or share(other_exposed, other_time) > 1 - OVERLAPS
    ):
        return
    overlap = 1 - share(other_exposed, other_time)
    yield RULE.costs(
        time,
        breakdown.window,
        title=f"The last collective of each step is {units.percent(time / breakdown.window)} of "
        "the window: nothing is left to compute beside it",
        evidence=f"{units.time(time)} of {units.time(breakdown.exposed_communication)} of exposed "
        f"communication; {units.percent(overlap)} of the rest overlaps.",
        remedy="Make the last bucket small (DDP's bucket_cap_mb), or start the optimizer on the "
        "buckets that have arrived; accumulate gradients over several batches (no_sync).",
        view="devices",
    )


RULE = Rule(
    "last-collective",
    _find,
    source="https://docs.pytorch.org/docs/stable/notes/ddp.html",
    explains=("exposed-communication",),
)
