"""What ranks of a job wait for, and who is late."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.ranks import Differing, RankDifference, Straggler
from torchgauge.records.trace.trace import RankTrace

SERIOUS = 0.1  # of the window
MAX_DIFFERENCES = 3
_PHRASES: dict[Differing, str] = {
    "kernels": "in kernels that compute",
    "copies": "in copies",
    "waiting for the host": "in which its device waits for the host",
    "input": "in the input pipeline",
    "synchronisations": "in which its host waits for the device",
    "host": "of its host",
}
_REMEDIES: dict[Differing, str] = {
    "kernels": "Give the ranks equal work (sequence lengths, pipeline stages); if theirs is equal, "
    "see whether its device runs slower.",
    "copies": "See its copies: more data, memory that is not pinned, or a slower link.",
    "waiting for the host": "See what its host does before it launches: other load on its cores, "
    "their pinning, Python code that only this rank runs.",
    "input": "See its input pipeline: its share of the files, their storage, its workers.",
    "synchronisations": "Remove the synchronisations that only this rank has (logging, metrics).",
    "host": "See why only this rank's host does this: logging, checkpoints, other load.",
}


@rule(
    "straggler",
    source="https://docs.pytorch.org/docs/stable/notes/ddp.html",
    explains=("late-rank", "uneven-work"),
)
def recurring_straggler(evidence: Evidence) -> Iterator[Finding]:
    """Find the ranks that the others wait for, time and again."""
    job = None if evidence.job is None else evidence.job.job
    for straggler in job.stragglers if job is not None else ():
        lost_share = straggler.lost / evidence.time
        first = straggler.differences[0].aspect if straggler.differences else None
        yield recurring_straggler.finding(
            "serious" if lost_share > SERIOUS else "warning",
            title=f"Rank {straggler.rank} comes last: the others wait "
            f"{units.time(straggler.lost)} for it",
            evidence=_evidence(straggler, lost_share),
            remedy="Compare its breakdown with the others': more work, a slower device, or its "
            "host."
            if first is None
            else _REMEDIES[first],
            time=straggler.lost,
            worth=straggler.lost,
            view="ranks",
        )


def _evidence(straggler: Straggler, lost_share: float) -> str:
    interval = straggler.interval
    text = (
        f"{units.percent(lost_share)} of the window "
        f"({units.time(interval.low)} to {units.time(interval.high)}); "
        f"the last in {straggler.last:,} of {straggler.units:,} {straggler.unit}s in which any "
        "rank was late."
    )
    phrases = [_phrase(difference) for difference in straggler.differences[:MAX_DIFFERENCES]]
    return f"{text} More than the others have: {', '.join(phrases)}." if phrases else text


def _phrase(difference: RankDifference) -> str:
    name = f" ({difference.name})" if difference.name else ""
    return f"{units.time(difference.extra_time)} {_PHRASES[difference.aspect]}{name}"


MAX_CALLS = 3


@rule("late-rank", source="https://docs.pytorch.org/docs/stable/notes/ddp.html")
def late_rank(evidence: Evidence) -> Iterator[Finding]:
    """Find the longest waits for a rank that is not late time and again."""
    job = None if evidence.job is None else evidence.job.job
    if job is None:
        return
    stragglers = {straggler.rank for straggler in job.stragglers}
    late = [call for call in job.late if call.rank not in stragglers]
    for call in late[:MAX_CALLS]:
        size = "" if call.bytes is None else f" of {units.size(call.bytes)}"
        yield late_rank.finding(
            "warning",
            title=f"All wait {units.time(call.late)} for rank {call.rank} in one {call.name}{size}",
            evidence=f"Call {call.number}, {units.time(call.time)} after the first collective "
            "began. A single delay: no rank is late more often than chance would have it.",
            remedy=f"Look at what rank {call.rank} did before it: garbage collection, an "
            "allocation, a checkpoint, a batch that is larger.",
            time=call.late,
            worth=call.late,
            view="ranks",
        )


# GPUs of one model differ by some percent in their clocks; half of the kernels' time is beyond it.
SLOWER = 1.1


@rule(
    "throttled-rank",
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
)
def throttled_rank(evidence: Evidence) -> Iterator[Finding]:
    """Find a rank whose device runs the same kernels on the same shapes slower."""
    trace = evidence.job
    if trace is None or trace.job is None or len(trace.ranks) < 3:  # of two, which is the usual?
        return
    ranks = {rank.rank: rank for rank in trace.ranks}
    for wait in trace.job.waits:
        factor = wait.kernel_time
        if factor is None or factor <= SLOWER:
            continue
        compute = max((device.breakdown.compute for device in ranks[wait.rank].times), default=0.0)
        excess = compute * (1 - 1 / factor)
        yield throttled_rank.finding(
            severity(share(excess, evidence.time)),
            title=f"Rank {wait.rank}'s kernels take {factor:.2f} times as long as the same kernels "
            "of the others",
            evidence=f"{units.time(excess)} of its {units.time(compute)} of computation; names and "
            "launch configurations are the same.",
            remedy="Look at its device's clocks, temperature and power limit meanwhile "
            "(`nvidia-smi -q -d PERFORMANCE`), and at other processes on it.",
            time=compute,
            worth=excess,
            view="ranks",
        )


# Some jitter is everywhere: ranks that wait for less have nothing to balance.
WAITING = 0.1


@rule("uneven-work", source="https://docs.pytorch.org/docs/stable/notes/ddp.html")
def uneven_work(evidence: Evidence) -> Iterator[Finding]:
    """Find work that differs from rank to rank and from step to step (sequence lengths)."""
    job = None if evidence.job is None else evidence.job.job
    if job is None or len(job.waits) < 2:
        return
    waiting = statistics.median(wait.waits for wait in job.waits)
    explained = sum(straggler.lost for straggler in job.stragglers)
    explained += sum(call.late for call in job.late) if not job.stragglers else 0.0
    if share(waiting, evidence.time) < WAITING or explained > waiting / 2:
        return
    waiting = min(waiting, evidence.time)
    yield uneven_work.costs(
        (waiting, evidence.time),
        title=f"Ranks wait for each other in turn, {units.percent(share(waiting, evidence.time))} "
        "of the window",
        evidence=f"{units.time(waiting)} of the middle rank in {job.calls:,} collectives; no rank "
        "is the last more often than chance would have it.",
        remedy="Make the ranks' batches cost the same: group sequences of one length, pack them, "
        "or balance by tokens instead of by samples.",
        view="ranks",
    )


# Of the mean: with 8 ranks, chance alone makes loads of experts differ by some tens of percent.
UNEVEN = 1.5


@rule(
    "uneven-exchange",
    source="https://docs.pytorch.org/docs/stable/distributed.html"
    "#torch.distributed.all_to_all_single",
)
def uneven_exchange(evidence: Evidence) -> Iterator[Finding]:
    """Find exchanges in which all wait for the rank with most to send or receive."""
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
    yield uneven_exchange.costs(
        (time, evidence.time),
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
