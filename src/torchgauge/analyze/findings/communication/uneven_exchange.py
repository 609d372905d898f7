"""An all-to-all in which some ranks exchange far more than others."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.trace import RankTrace

# Of the mean: with 8 ranks, chance alone makes loads of experts differ by some tens of percent.
UNEVEN = 1.5


def _find(evidence: Evidence) -> Iterator[Finding]:
    """All wait for the rank with most to send or receive: its share decides the exchange."""
    trace = evidence.job
    if trace is None:
        return
    sizes = {rank.rank: size for rank in trace.ranks if (size := _exchanged(rank)) is not None}
    if len(sizes) < 2 or not (mean := statistics.mean(sizes.values())):
        return
    largest = max(sizes, key=lambda number: sizes[number])
    time = max(_exchanging(rank) for rank in trace.ranks)
    factor = sizes[largest] / mean
    if factor < UNEVEN or share(time, evidence.time) < NOTICEABLE:
        return
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Rank {largest} exchanges {factor:.1f} times as much as the mean rank in all-to-all",
        evidence=f"{units.size(sizes[largest])} of {units.size(mean)} a rank; the exchanges take "
        f"{units.time(time)}.",
        remedy="Spread what it owns: balance the experts (auxiliary loss, capacity factor), or "
        "shard the largest tables by rows.",
        worth=time * (1 - 1 / factor),
        view="ranks",
    )


def _exchanged(rank: RankTrace) -> float | None:
    """Return the bytes of all messages of a rank, None where any is unknown or there is none."""
    kinds = [kind for kind in rank.collectives if kind.name.startswith("alltoall")]
    sizes = [kind.bytes * kind.calls for kind in kinds if kind.bytes is not None]
    return float(sum(sizes)) if sizes and len(sizes) == len(kinds) else None


def _exchanging(rank: RankTrace) -> float:
    time = sum(kind.time for kind in rank.collectives if kind.name.startswith("alltoall"))
    return min(time, rank.window)


RULE = Rule(
    "uneven-exchange",
    _find,
    source="https://docs.pytorch.org/docs/stable/distributed.html"
    "#torch.distributed.all_to_all_single",
)
