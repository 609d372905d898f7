"""A collective whose bus bandwidth is far below that of others of its size."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.trace import Collectives, RankTrace

# Smaller messages are bound by latency.
LARGE = 4 * 2**20
# Larger messages of the same ranks reach at least about the same.
SLOWER = 2.0
MIN_CALLS = 2
_RINGS = {"allreduce", "allgather", "reducescatter"}


def _find(evidence: Evidence) -> Iterator[Finding]:
    """Waiting is known and taken out, so that what differs is the transfer itself."""
    trace = evidence.job
    for rank in trace.ranks if trace is not None else ():
        measured = [kind for kind in rank.collectives if _is_measured(kind, rank)]
        slow = [(kind, best) for kind in measured if (best := _best(kind, measured)) is not None]
        time = min(sum(kind.transfer or 0.0 for kind, _ in slow), rank.window)
        if not slow or share(time, evidence.time) < NOTICEABLE:
            continue
        kind, best = max(slow, key=lambda pair: pair[0].transfer or 0.0)
        assert kind.bus_bandwidth is not None  # noqa: S101 - `_is_measured`
        assert best.bus_bandwidth is not None  # noqa: S101
        factor = best.bus_bandwidth / kind.bus_bandwidth
        yield RULE.costs(
            time,
            evidence.time,
            title=f"{kind.name} of {units.size(kind.bytes or 0)} reaches 1/{factor:.1f} of the "
            f"bandwidth of {best.name}",
            evidence=f"Rank {rank.rank}: {units.size(kind.bus_bandwidth)}/s over {kind.calls} "
            f"calls; {units.size(best.bus_bandwidth)}/s with {units.size(best.bytes or 0)}, also "
            f"of {best.group} ranks. Waiting is left out.",
            remedy="See what shares the links then (another job, copies to the host), and "
            "what NCCL chose (NCCL_DEBUG=INFO: its rings, protocol and algorithm).",
            worth=time * (1 - 1 / factor),
            view="ranks",
        )
        return  # all ranks of a group have the same collectives


def _is_measured(kind: Collectives, rank: RankTrace) -> bool:
    """Whether its bandwidth is known; groups of some ranks may have other links than others."""
    return (
        kind.transfer is not None
        and kind.group == rank.world
        and bool(kind.bus_bandwidth)
        and (kind.bytes or 0) >= LARGE
        and kind.calls >= MIN_CALLS
    )


def _best(kind: Collectives, measured: list[Collectives]) -> Collectives | None:
    """Return the fastest one of the others that are not larger, if it is much faster."""
    comparable = [
        other
        for other in measured
        if (other.bytes or 0) <= (kind.bytes or 0)
        and (other.name == kind.name or {other.name, kind.name} <= _RINGS)
    ]
    best = max(comparable, key=lambda other: other.bus_bandwidth or 0.0)
    return best if (best.bus_bandwidth or 0.0) > SLOWER * (kind.bus_bandwidth or 0.0) else None


RULE = Rule(
    "slow-bandwidth",
    _find,
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
)
