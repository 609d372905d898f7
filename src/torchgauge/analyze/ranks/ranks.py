"""Comparison of the ranks of one job, from the record of each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from torchgauge.analyze.loop.rank_verdict import rank_verdict
from torchgauge.errors import InputError
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Loop, LoopVerdict
from torchgauge.records.trace.ranks import Ranks, RankTime

# Ranks differ by chance: less than so much of a step is no straggler.
NOTICEABLE = 0.05


def merged(loops: Sequence[Loop], folder: str = "") -> Ranks:
    """Return the ranks of one job side by side; of two records of a rank the later counts.

    All ranks leave a step together, so that the slow one is told by its work, not by its step:
    what the others have more of is waiting. The straggler is the verdict's; older records, without
    the times of undisturbed steps, are compared by their recorded ones. `folder` is where the
    records lie. Raises InputError `ranks-none`, `ranks-mixed`.
    """
    loops_by_rank = {
        loop.rank.number: loop for loop in sorted(loops, key=_created) if loop.rank is not None
    }
    if not loops_by_rank:
        raise InputError(
            "There is no record of a rank.",
            id="ranks-none",
            cause="Records of ranks are made where RANK and WORLD_SIZE are set, as torchrun does.",
            remedy="Start the loop with torchrun.",
        )
    jobs = {
        (loop.rank.job, loop.rank.world) for loop in loops_by_rank.values() if loop.rank is not None
    }
    if len(jobs) > 1:
        raise InputError(
            "The records are of different jobs.",
            id="ranks-mixed",
            cause="An earlier run left its records in the same folder.",
            remedy="Remove the older files, or give each run its own folder.",
        )
    ((_, world),) = jobs
    times = [
        time for number in sorted(loops_by_rank) if (time := _time(number, loops_by_rank[number]))
    ]
    ordered = {number: loops_by_rank[number] for number in sorted(loops_by_rank)}
    verdict = rank_verdict(ordered, folder)
    straggler, lost = _straggler(times) if verdict is None else _named(verdict)
    step = sum(rank.step for rank in times)
    return Ranks(
        world=world,
        ranks=tuple(times),
        missing=tuple(sorted(set(range(world)) - {rank.number for rank in times})),
        straggler=straggler,
        lost=lost,
        share=sum(rank.communication for rank in times) / step if step else None,
        exposed=sum(rank.waiting for rank in times) / step if step else None,
        verdict=verdict,
        warnings=_warnings(loops_by_rank),
    )


def _created(loop: Loop) -> str:
    return loop.environment.created


def _time(number: int, loop: Loop) -> RankTime | None:
    step = loop.median("record")
    if step is None or loop.communication is None or loop.waiting is None:
        return None
    return RankTime(
        number=number,
        steps=loop.captured.recorded,
        step=step,
        work=step - loop.waiting,
        waiting=loop.waiting,
        communication=loop.communication,
        mfu=None if loop.utilization is None else loop.utilization.mfu,
    )


def _named(verdict: LoopVerdict) -> tuple[int | None, float | None]:
    if verdict.rank is None or verdict.share is None or verdict.time is None:
        return None, None
    return verdict.rank, verdict.share * verdict.time


def _straggler(times: Sequence[RankTime]) -> tuple[int | None, float | None]:
    # Ranks that do not communicate never wait for each other.
    if len(times) < 2 or not any(rank.communication for rank in times):
        return None, None
    slowest = max(times, key=lambda rank: rank.work)
    median_work = statistics.median(rank.work for rank in times if rank is not slowest)
    lost = slowest.work - median_work
    return (slowest.number, lost) if lost > NOTICEABLE * slowest.step else (None, None)


def _warnings(loops: dict[int, Loop]) -> tuple[MeasurementWarning, ...]:
    return tuple(
        MeasurementWarning(
            id=warning.id,
            message=f"Rank {number}: {warning.message}",
            probe=warning.probe,
            failed=warning.failed,
            cause=warning.cause,
            remedy=warning.remedy,
        )
        for number, loop in sorted(loops.items())
        for warning in loop.all_warnings
        if warning.failed
    )
