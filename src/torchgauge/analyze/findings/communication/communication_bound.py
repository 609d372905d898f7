"""Transfers that take longer than all computation, so that they cannot hide behind it."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import SERIOUS, Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.trace import RankTrace


def _find(evidence: Evidence) -> Iterator[Finding]:
    """Waiting for each other is known and left out: what remains is what the links take."""
    trace = evidence.job
    if trace is None:
        return
    bound = [(rank, more) for rank in trace.ranks if (more := _more_than_compute(rank)) is not None]
    if not bound or len(bound) < len(trace.ranks):
        return
    rank, more = min(bound, key=lambda pair: pair[1])
    breakdown = rank.times[0].breakdown
    transfer = breakdown.compute + more
    time = min(breakdown.exposed_communication, more)
    if share(time, evidence.time) < SERIOUS:
        return
    yield Finding(
        id="communication-bound",
        severity=severity(share(time, evidence.time)),
        title=f"Transfers take {units.time(transfer)}, computation "
        f"{units.time(breakdown.compute)}: no order of work hides them",
        evidence=f"Rank {rank.rank}, of all ranks the one with least; waiting for others is left "
        "out.",
        remedy="Send less or less often: accumulate gradients (no_sync), reduce them in bf16 "
        "(a communication hook), shard within a node (HSDP), a larger batch a rank.",
        time=time,
        worth=time,
        view="ranks",
    )


def _more_than_compute(rank: RankTrace) -> float | None:
    """Return by how many seconds transfers take longer than computation, None if they do not."""
    transfers = [kind.transfer for kind in rank.collectives]
    known = [transfer for transfer in transfers if transfer is not None]
    if len(rank.times) != 1 or len(known) < len(transfers):
        return None
    breakdown = rank.times[0].breakdown
    # Collectives of two groups may run at once.
    more = min(sum(known), breakdown.communication) - breakdown.compute
    return more if more > 0 else None


RULE = Rule(
    "communication-bound",
    _find,
    source="https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html",
)
