"""Ranks side by side: who waits for whom, and which collective was slow.

A collective ends on all ranks at once, so that its ends say by how much the ranks' clocks differ.
On one clock the time until the last rank has begun is waiting, and the rest is transfer.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
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
    """One collective on the ranks of its group, in ns of one clock: ranks × calls.

    `places` are those of the ranks among all of the job; `complete` where none of them has it less
    or more often than most have, and is left out.
    """

    said: Message
    complete: bool
    places: Integers
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
    first = _first(calls)
    every = (_matched(said, numbers, calls, first) for said in sorted(known, key=str))
    matched = [one for one in every if one is not None]
    taking_part = {place for one in matched for place in one.places.tolist()}
    skew = _skew(matched, len(numbers))
    aligned = [_on_one_clock(one, skew) for one in matched]
    waits, late = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    for one in aligned:
        waits[one.places] += one.wait.sum(axis=1)
        late[one.places] += _late(one)
    window = max(one.window for one in ranks.values())
    straggler = int(np.argmax(late))
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
            if place in taking_part
        ),
        slow=tuple(sorted(_slow(aligned, window), key=lambda one: one.usual - one.transfer)),
        straggler=numbers[straggler] if stands_out else None,
        lost=lost if stands_out else None,
        unmatched=len(known) - sum(one.complete for one in matched),
    )
    return found, [
        _told_apart(ranks[number], place, aligned) for place, number in enumerate(numbers)
    ]


def _first(calls: Mapping[int, Calls]) -> int:
    """Return when the first call of all began: medians of ns since 1970 are off by up to 128."""
    begins = (begin for each in calls.values() for begin, _ in each.of.values())
    return min((int(begin.min()) for begin in begins), default=0)


def _matched(
    said: Message, numbers: list[int], calls: Mapping[int, Calls], first: int
) -> _Matched | None:
    """Return a collective on its ranks; None where most of them do not have it equally often.

    One of a file that was cut off has fewer, and which of them is which is not known. Times count
    from `first`.
    """
    having = [at for at, number in enumerate(numbers) if said in calls[number].of]
    counts = Counter(len(calls[numbers[at]].of[said][0]) for at in having)
    usual, _ = counts.most_common(1)[0]
    places = [at for at in having if len(calls[numbers[at]].of[said][0]) == usual]
    listed = set(said.members()) & set(numbers)
    fewest = len(numbers) if said.size is None else min(said.size, len(numbers))
    group = len(listed.union(numbers[at] for at in having)) if listed else max(fewest, len(having))
    if len(places) < 2 or len(places) <= group / 2:
        return None
    begins, ends = zip(*(calls[numbers[at]].of[said] for at in places), strict=True)
    begin, end = np.stack(begins) - first, np.stack(ends) - first
    return _Matched(said, len(places) == group, np.array(places), begin, end)


def _on_one_clock(one: _Matched, skew: Integers) -> _Matched:
    ahead = skew[one.places, None]
    return dataclasses.replace(one, begin=one.begin - ahead, end=one.end - ahead)


def _skew(matched: list[_Matched], ranks: int) -> Integers:
    """Return by how many ns each rank's clock is ahead of the middle one.

    Groups that share a rank share a clock: from the largest group on each moves those that are on
    one clock already all together. Where groups share none, each has a middle of its own.
    """
    ends: dict[tuple[int, ...], list[Integers]] = {}
    for one in matched:
        ends.setdefault(tuple(one.places.tolist()), []).append(one.end)
    skew, clock = np.zeros(ranks, np.int64), np.arange(ranks)
    for places in sorted(ends, key=lambda some: (-len(some), -sum(e.shape[1] for e in ends[some]))):
        together, here = np.concatenate(ends[places], axis=1), np.array(places)
        ahead = np.median(together - np.median(together, axis=0), axis=1)
        first = int(clock[here[0]])
        for other in np.unique(clock[here]).tolist():
            mine = clock[here] == other
            skew[clock == other] += np.int64(np.median(ahead[mine] - skew[here[mine]]))
            clock[clock == other] = first
    for one in np.unique(clock).tolist():
        skew[clock == one] -= np.int64(np.median(skew[clock == one]))
    return skew


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
                name=one.said.name,
                bytes=one.said.bytes,
                number=number,
                at=(int(one.last[number]) - origin) * 1e-9,
                transfer=int(transfer[number]) * 1e-9,
                usual=usual * 1e-9,
            )
            for number in np.flatnonzero(longer).tolist()
        ]
    return found


def _told_apart(rank: RankTrace, place: int, matched: list[_Matched]) -> RankTrace:
    waits: dict[tuple[object, ...], list[Integers]] = {}
    for each in matched:
        for at in np.flatnonzero(each.places == place).tolist():
            waits.setdefault(each.said[:4], []).append(each.wait[at])

    def told(one: Collectives) -> Collectives:
        found = waits.get((one.name, one.dtype, one.bytes, one.group), [])
        if sum(map(len, found)) != one.calls:  # those of some group are not known
            return one
        wait = sum(int(each.sum()) for each in found) * 1e-9
        transfer = max(one.time - wait, 0.0)
        share = bus_share(one.name, one.group) if one.group is not None else None
        fast = one.bytes is not None and share is not None and transfer > 0
        rate = one.bytes * share * one.calls / transfer if fast else None  # type: ignore[operator]
        return msgspec.structs.replace(one, wait=wait, transfer=transfer, bus_bandwidth=rate)

    return msgspec.structs.replace(rank, collectives=tuple(map(told, rank.collectives)))
