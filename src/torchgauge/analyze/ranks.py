"""The records of a job's ranks, put side by side."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from torchgauge.errors import InputError
from torchgauge.model.loop import Loop
from torchgauge.model.ranks import Ranks, RankTime
from torchgauge.model.record import MeasurementWarning

# Ranks differ by chance: less than so much of a step is no straggler.
NOTICEABLE = 0.05


def merged(loops: Sequence[Loop]) -> Ranks:
    """Return the ranks of one job side by side; of two records of a rank the later counts.

    All ranks leave a step together, so that the slow one is told by its work, not by its step:
    what the others have more of is waiting. Raises InputError `ranks-none`, `ranks-mixed`.
    """
    known = {one.rank.number: one for one in sorted(loops, key=_created) if one.rank is not None}
    if not known:
        raise InputError(
            "There is no record of a rank.",
            id="ranks-none",
            cause="Records of ranks are made where RANK and WORLD_SIZE are set, as torchrun does.",
            remedy="Start the loop with torchrun.",
        )
    jobs = {(one.rank.job, one.rank.world) for one in known.values() if one.rank is not None}
    if len(jobs) > 1:
        raise InputError(
            "The records are of different jobs.",
            id="ranks-mixed",
            cause="An earlier run left its records in the same folder.",
            remedy="Remove the older files, or give each run its own folder.",
        )
    ((_, world),) = jobs
    times = [time for number in sorted(known) if (time := _time(number, known[number]))]
    straggler, lost = _straggler(times)
    step = sum(one.step for one in times)
    return Ranks(
        world=world,
        ranks=tuple(times),
        missing=tuple(sorted(set(range(world)) - {one.number for one in times})),
        straggler=straggler,
        lost=lost,
        share=sum(one.communication for one in times) / step if step else None,
        exposed=sum(one.waiting for one in times) / step if step else None,
        warnings=_warnings(known),
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
    )


def _straggler(times: Sequence[RankTime]) -> tuple[int | None, float | None]:
    if len(times) < 2:
        return None, None
    slowest = max(times, key=lambda one: one.work)
    others = statistics.median(one.work for one in times if one is not slowest)
    lost = slowest.work - others
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
