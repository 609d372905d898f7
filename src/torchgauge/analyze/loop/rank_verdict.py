"""The verdict of several ranks: the one that the others wait for, or what all have in common.

All ranks leave a step together, so that the slow one is known by its own time: the step less its
waiting. In each step that is compared with the median of the other ranks. A rank is named where the
mean or the median of these differences is above SMALLEST of a step with its whole interval, which
allows for steps that resemble their neighbours and for the number of ranks; or where that is so of
one kind of its time, which varies less than the whole step, and the median step is longer as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from torchgauge import units
from torchgauge.analyze.loop.loop_verdict import MIN_STEPS, SMALLEST, percents, unclear
from torchgauge.analyze.loop.step_shares import TAIL, mean_of
from torchgauge.analyze.statistics.median import median_interval
from torchgauge.records.record import Interval
from torchgauge.records.timeline.loop import STEP_KINDS, Loop, LoopVerdict, StepKind
from torchgauge.visible import one_line

_Floats = npt.NDArray[np.float64]
_OWN: tuple[StepKind, ...] = tuple(kind for kind in STEP_KINDS if kind != "waiting")
_CAUSES: dict[StepKind, str] = {
    "loading": "data loading",
    "collecting": "garbage collection",
    "outside": "host code",
}
# Of a rank's extra time: kinds of less are not said.
NOTICEABLE = 0.2


class _Ahead(NamedTuple):
    """How much more of a step a rank needs than the others, with its interval."""

    rank: int
    share: float
    interval: Interval


class _Steps(NamedTuple):
    """The steps that all ranks have: seconds by kind, as [rank, step]."""

    ranks: Sequence[int]
    by_kind: dict[StepKind, _Floats]
    preempted: _Floats | None

    @property
    def own(self) -> _Floats:
        """Each step without the waiting."""
        return np.asarray(np.sum([self.by_kind[kind] for kind in _OWN], axis=0))

    @property
    def duration(self) -> float:
        """Seconds of a step in which threads could run, the mean."""
        return float((self.own + self.by_kind["waiting"]).mean())


def rank_verdict(loops: Mapping[int, Loop], folder: str = "") -> LoopVerdict | None:
    """Return what bounds the job; None where the records do not say what their steps did.

    `folder` is where the records lie, for the command to run next.
    """
    steps = _common_steps(loops)
    if steps is None:
        return None
    count = steps.own.shape[1]
    if count < MIN_STEPS:
        reason = f"the ranks have {count} steps in common that ran without a profiler"
        return unclear(count, reason)
    named = [ahead for index in range(len(loops)) if (ahead := _ahead(steps, index)) is not None]
    if named and steps.by_kind["waiting"].any():
        worst = max(named, key=lambda ahead: ahead.interval.low)
        return _of_rank(worst, steps, loops[worst.rank], folder)
    return _of_all(steps, loops)


def _common_steps(loops: Mapping[int, Loop]) -> _Steps | None:
    times = [loop.step_times for loop in loops.values()]
    known_times = [rank_times for rank_times in times if rank_times is not None]
    if len(known_times) < max(len(times), 2):
        return None
    common = sorted(set.intersection(*(set(rank_times.steps) for rank_times in known_times)))
    rows = [np.searchsorted(np.asarray(rank_times.steps), common) for rank_times in known_times]

    def table(series: Sequence[Sequence[float]]) -> _Floats:
        return np.array([np.asarray(values)[row] for values, row in zip(series, rows, strict=True)])

    delays = [series.preempted for series in known_times if series.preempted is not None]
    return _Steps(
        list(loops),
        {kind: table([series.seconds(kind) for series in known_times]) for kind in STEP_KINDS},
        table(delays) if len(delays) == len(known_times) else None,
    )


def _extra_time(values: _Floats, index: int) -> _Floats:
    """Return by step how much more a rank has than the median of the others."""
    return np.asarray(values[index] - np.median(np.delete(values, index, axis=0), axis=0))


def _ahead(steps: _Steps, index: int) -> _Ahead | None:
    """Return by how much a rank is slower than the others; None where that may be chance."""
    step_differences = _extra_time(steps.own, index) / steps.duration
    named = _above(steps.ranks[index], step_differences, TAIL / len(steps.ranks))
    if named is not None or np.median(step_differences) <= SMALLEST:
        return named
    kinds = (_extra_time(steps.by_kind[kind], index) / steps.duration for kind in _OWN)
    tail = TAIL / len(steps.ranks) / len(_OWN)
    of_kinds = (_above(steps.ranks[index], extra_time, tail) for extra_time in kinds)
    return max(filter(None, of_kinds), key=lambda ahead: ahead.interval.low, default=None)


def _above(rank: int, extra_time: _Floats, tail: float) -> _Ahead | None:
    """Return the mean or median with the higher lower end, if that is above SMALLEST."""
    median = float(np.median(extra_time)), median_interval(extra_time)
    candidates = [
        _Ahead(rank, share, interval)
        for share, interval in (mean_of(extra_time, tail), median)
        if interval is not None and interval.low > SMALLEST
    ]
    return max(candidates, key=lambda ahead: ahead.interval.low, default=None)


def _of_rank(ahead: _Ahead, steps: _Steps, loop: Loop, folder: str) -> LoopVerdict:
    index = list(steps.ranks).index(ahead.rank)
    extra_times: dict[StepKind, tuple[float, Interval | None]] = {
        kind: mean_of(_extra_time(steps.by_kind[kind], index)) for kind in _OWN
    }
    kinds = sorted(_OWN, key=lambda kind: -extra_times[kind][0])
    first = kinds[0]
    cause = _CAUSES.get(first, first)
    read = loop.verdict is not None and loop.verdict.fault and loop.verdict.cause == ".item()"
    if first == "outside" and read:
        cause = ".item()"
    extra = sum(max(extra_times[kind][0], 0.0) for kind in _OWN)
    evidence = [
        _difference(_CAUSES.get(kind, kind), *extra_times[kind])
        for kind in kinds
        if extra_times[kind][0] > NOTICEABLE * extra
    ]
    if steps.preempted is not None:
        delayed = mean_of(_extra_time(steps.preempted, index))
        if delayed[0] > NOTICEABLE * extra:
            evidence.append(_difference("time without a core, beside these", *delayed))
    if loop.verdict is not None:
        evidence += [f"Rank {ahead.rank}: {line}" for line in loop.verdict.evidence]
    text = units.time(ahead.share * steps.duration, 3)
    return LoopVerdict(
        bound="rank",
        fault=True,
        title=f"Rank {ahead.rank} is slower by {units.percent(ahead.share)} "
        f"({percents(ahead.interval)}) of a step, in its {cause}: the others wait {text} for it",
        cause=cause,
        rank=ahead.rank,
        share=ahead.share,
        interval=ahead.interval,
        time=steps.duration,
        steps=steps.own.shape[1],
        evidence=tuple(evidence),
        command=f"torchgauge report {folder}loop.rank{ahead.rank}.json",
    )


def _difference(name: str, mean: float, interval: Interval | None) -> str:
    reach = "" if interval is None else f" ({units.times(interval.low, interval.high, 3)})"
    return f"{units.time(mean, 3)}{reach} more than the other ranks: {name}."


def _of_all(steps: _Steps, loops: Mapping[int, Loop]) -> LoopVerdict:
    """Return what most ranks are bound by, with the middle one's figures."""
    verdicts = [loop.verdict for loop in loops.values() if loop.verdict is not None]
    kinds = Counter((v.bound, v.cause, v.fault) for v in verdicts)
    (key, count) = kinds.most_common(1)[0] if kinds else (None, 0)
    if key is None or 2 * count <= len(loops) or key[0] == "unclear":
        return LoopVerdict(
            bound="nothing stands out",
            title="Nothing stands out: no rank is slower than the others, and they differ in what "
            "takes their time",
            time=steps.duration,
            steps=steps.own.shape[1],
            evidence=tuple(
                f"Rank {number}: {one_line(loop.verdict.title)}"
                for number, loop in list(loops.items())[:3]
                if loop.verdict is not None
            ),
        )
    same_verdicts = [v for v in verdicts if (v.bound, v.cause, v.fault) == key]
    same_verdicts.sort(key=lambda verdict: verdict.share or 0.0)
    middle = same_verdicts[len(same_verdicts) // 2]
    title = f"{middle.title}; no rank is slower than the others"
    return msgspec.structs.replace(
        middle, title=title, time=steps.duration, steps=steps.own.shape[1]
    )
