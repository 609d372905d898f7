"""Ranks side by side: who waits for whom, and which collective was slow.

A collective ends on all ranks at once, so that its ends say by how much the ranks' clocks differ.
On one clock the time until the last rank has begun is waiting, and the rest is transfer.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping

import msgspec
import numpy as np

from torchgauge.analyze.collectives import bus_share
from torchgauge.analyze.rank_calls import Calls, Message
from torchgauge.model.events import Integers
from torchgauge.model.trace import Collectives, Job, RankTrace, RankWait, SlowCall

# Ranks and calls differ by chance: what is less is no straggler and no slow call.
NOTICEABLE = 0.02  # of the window
TIMES = 2.0  # the usual transfer


@dataclasses.dataclass(frozen=True, eq=False)
class _Matched:
    """One collective on all ranks, in ns of one clock: ranks × calls."""

    said: Message
    begin: Integers
    end: Integers

    @property
    def last(self) -> Integers:
        """When the last rank had begun, by call; not after the call's end."""
        return np.asarray(np.minimum(self.begin.max(axis=0), self.end.min(axis=0)))

    @property
    def wait(self) -> Integers:
        """What each rank waited: ranks × calls."""
        return np.asarray(np.clip(self.last - self.begin, 0, None))

    @property
    def transfer(self) -> Integers:
        """What the message itself took, by call."""
        return np.asarray(np.median(self.end, axis=0), np.int64) - self.last


def job(ranks: Mapping[int, RankTrace], calls: Mapping[int, Calls]) -> tuple[Job, list[RankTrace]]:
    """Return what the ranks say together, and each with waiting and transfer told apart."""
    numbers = sorted(ranks)
    known = {said for number in numbers for said in calls[number].of}
    shared = [said for said in sorted(known, key=str) if _everywhere(said, numbers, calls)]
    matched = [_matched(said, [calls[number] for number in numbers]) for said in shared]
    skew = _skew(matched, len(numbers))
    aligned = [
        _Matched(one.said, one.begin - skew[:, None], one.end - skew[:, None]) for one in matched
    ]
    waits = sum((one.wait.sum(axis=1) for one in aligned), np.zeros(len(numbers), np.int64))
    late = sum((_late(one) for one in aligned), np.zeros(len(numbers), np.int64))
    window = max(one.window for one in ranks.values())
    straggler = int(np.argmax(late)) if len(late) else 0
    lost = float(late[straggler]) * 1e-9
    stands_out = lost > NOTICEABLE * window and lost > 2 * float(np.median(late)) * 1e-9
    found = Job(
        calls=sum(one.begin.shape[1] for one in aligned),
        waits=tuple(
            RankWait(
                rank=number,
                waits=int(waits[place]) * 1e-9,
                waited_for=int(late[place]) * 1e-9,
                skew=int(skew[place]) * 1e-9,
            )
            for place, number in enumerate(numbers)
        ),
        slow=tuple(sorted(_slow(aligned, window), key=lambda one: one.usual - one.transfer)),
        straggler=numbers[straggler] if stands_out else None,
        lost=lost if stands_out else None,
        unmatched=len(known) - len(shared),
    )
    return found, [
        _told_apart(ranks[number], place, aligned) for place, number in enumerate(numbers)
    ]


def _everywhere(said: Message, numbers: list[int], calls: Mapping[int, Calls]) -> bool:
    counts = {len(calls[n].of[said][0]) if said in calls[n].of else 0 for n in numbers}
    return len(counts) == 1


def _matched(said: Message, calls: list[Calls]) -> _Matched:
    begins, ends = zip(*(one.of[said] for one in calls), strict=True)
    return _Matched(said, np.stack(begins), np.stack(ends))


def _skew(matched: list[_Matched], ranks: int) -> Integers:
    """Return by how many ns each rank's clock is ahead of the middle one."""
    if not matched:
        return np.zeros(ranks, np.int64)
    ends = np.concatenate([one.end for one in matched], axis=1)
    ahead = np.median(ends - np.median(ends, axis=0), axis=1)
    return np.asarray(ahead, np.int64)


def _late(one: _Matched) -> Integers:
    """Return for each rank the ns that the middle one of the others waited for it as the last."""
    ranks = len(one.begin)
    ordered = np.sort(one.begin, axis=0)
    others = np.median(ordered[:-1], axis=0)
    lost = np.maximum(one.last - others, 0)
    return np.bincount(np.argmax(one.begin, axis=0), lost, minlength=ranks).astype(np.int64)


def _slow(matched: list[_Matched], window: float) -> list[SlowCall]:
    origin = min((int(one.begin.min()) for one in matched), default=0)
    found = []
    for one in matched:
        transfer = one.transfer
        usual = statistics.median(transfer.tolist())
        longer = (transfer > TIMES * usual) & (transfer - usual > NOTICEABLE * window * 1e9)
        found += [
            SlowCall(
                name=one.said[0],
                bytes=one.said[2],
                number=number,
                at=(int(one.last[number]) - origin) * 1e-9,
                transfer=int(transfer[number]) * 1e-9,
                usual=usual * 1e-9,
            )
            for number in np.flatnonzero(longer).tolist()
        ]
    return found


def _told_apart(rank: RankTrace, place: int, matched: list[_Matched]) -> RankTrace:
    known = {one.said: one for one in matched}

    def told(one: Collectives) -> Collectives:
        found = known.get((one.name, one.dtype, one.bytes, one.group))
        if found is None:
            return one
        wait = int(found.wait[place].sum()) * 1e-9
        transfer = max(one.time - wait, 0.0)
        share = bus_share(one.name, one.group) if one.group is not None else None
        fast = one.bytes is not None and share is not None and transfer > 0
        rate = one.bytes * share * one.calls / transfer if fast else None  # type: ignore[operator]
        return msgspec.structs.replace(one, wait=wait, transfer=transfer, bus_bandwidth=rate)

    return msgspec.structs.replace(rank, collectives=tuple(map(told, rank.collectives)))
