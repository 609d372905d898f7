"""Transfers that take longer than all computation, so that they cannot hide behind it."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import SERIOUS, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.trace import RankTrace


def _find(evidence: Evidence) -> Iterator[Finding]:
    """Waiting for each other is known and left out: what remains is what the links take."""
    trace = evidence.job
    if trace is None:
        return
    excesses = [_more_than_compute(rank) for rank in trace.ranks]
    bound = [pair for pair in zip(trace.ranks, excesses, strict=True) if pair[1] is not None]
    if len(bound) < len(trace.ranks):
        return
    rank, excess = min(bound, key=lambda pair: pair[1] or 0.0)
    assert excess is not None  # noqa: S101 - selected
    breakdown = rank.times[0].breakdown
    transfer = breakdown.compute + excess
    time = min(breakdown.exposed_communication, excess)
    if share(time, evidence.time) < SERIOUS:
        return
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Transfers take {units.time(transfer)}, computation "
        f"{units.time(breakdown.compute)}: no order of work hides them",
        evidence=f"Rank {rank.rank}, of all ranks the one with least; waiting for others is left "
        "out.",
        remedy="Send less or less often: accumulate gradients (no_sync), reduce them in bf16 "
        "(a communication hook), shard within a node (HSDP), a larger batch a rank.",
        view="ranks",
    )


def _more_than_compute(rank: RankTrace) -> float | None:
    """Return by how many seconds transfers take longer than computation, None if they do not."""
    transfers = [kind.transfer for kind in rank.collectives]
    known_transfers = [transfer for transfer in transfers if transfer is not None]
    if len(rank.times) != 1 or len(known_transfers) < len(transfers):
        return None
    breakdown = rank.times[0].breakdown
    # Collectives of two groups may run at once.
    excess = min(sum(known_transfers), breakdown.communication) - breakdown.compute
    return excess if excess > 0 else None


RULE = Rule(
    "communication-bound",
    _find,
    source="https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html",
)
