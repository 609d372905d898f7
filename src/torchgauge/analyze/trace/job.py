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

from torchgauge.analyze.trace.collectives import bus_share
from torchgauge.analyze.trace.rank_calls import Calls, Message
from torchgauge.records.trace.events import Integers
from torchgauge.records.trace.trace import Collectives, Job, RankTrace, RankWait, SlowCall

# Ranks and calls differ by chance: what is less is no straggler and no slow call.
NOTICEABLE = 0.02  # of the window
TIMES = 2.0  # the usual transfer


@dataclasses.dataclass(frozen=True, eq=False)
class _MatchedCollective:
    """One collective on the ranks of its group, in ns of one clock: ranks × calls.

    `rank_indices` are those of the ranks among all of the job; `complete` where none of them has it
    less or more often than most have, and is left out.
    """

    message: Message
    complete: bool
    rank_indices: Integers
    begin: Integers
    end: Integers

    @property
    def last(self) -> Integers:
        """When the last rank had begun, by call; not after the call's end."""
        return np.asarray(np.minimum(self.begin.max(axis=0), self.end.min(axis=0)))

    @property
    def wait(self) -> Integers:
        """How long each rank waited: ranks × calls."""
        return np.asarray(np.clip(self.last - self.begin, 0, None))

    @property
    def transfer(self) -> Integers:
        """How long the transfer itself took, by call."""
        return np.asarray(np.median(self.end, axis=0), np.int64) - self.last


def job(ranks: Mapping[int, RankTrace], calls: Mapping[int, Calls]) -> tuple[Job, list[RankTrace]]:
    """Return the comparison of the ranks, and each rank with waiting split from transfer."""
    numbers = sorted(ranks)
    messages = {message for number in numbers for message in calls[number].by_message}
    first = _first(calls)
    candidates = (_matched(message, numbers, calls, first) for message in sorted(messages, key=str))
    matched = [collective for collective in candidates if collective is not None]
    taking_part = {
        rank_index for collective in matched for rank_index in collective.rank_indices.tolist()
    }
    skew = _skew(matched, len(numbers))
    aligned = [_on_one_clock(collective, skew) for collective in matched]
    waits, late = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    for collective in aligned:
        waits[collective.rank_indices] += collective.wait.sum(axis=1)
        late[collective.rank_indices] += _late(collective)
    window = max(rank.window for rank in ranks.values())
    straggler = int(np.argmax(late))
    lost = float(late[straggler]) * 1e-9
    stands_out = lost > NOTICEABLE * window and lost > 2 * float(np.median(late)) * 1e-9
    result = Job(
        calls=sum(collective.begin.shape[1] for collective in aligned),
        waits=tuple(
            RankWait(
                rank=number,
                waits=int(waits[rank_index]) * 1e-9,
                waited_for=int(late[rank_index]) * 1e-9,
                skew=int(skew[rank_index]) * 1e-9,
            )
            for rank_index, number in enumerate(numbers)
            if rank_index in taking_part
        ),
        slow=tuple(sorted(_slow(aligned, window), key=lambda call: call.usual - call.transfer)),
        straggler=numbers[straggler] if stands_out else None,
        lost=lost if stands_out else None,
        unmatched=len(messages) - sum(collective.complete for collective in matched),
    )
    return result, [
        _with_waits(ranks[number], rank_index, aligned) for rank_index, number in enumerate(numbers)
    ]


def _first(calls: Mapping[int, Calls]) -> int:
    """Return when the first call of all began: medians of ns since 1970 are off by up to 128."""
    begins = (begin for rank in calls.values() for begin, _ in rank.by_message.values())
    return min((int(begin.min()) for begin in begins), default=0)


def _matched(
    message: Message, numbers: list[int], calls: Mapping[int, Calls], first: int
) -> _MatchedCollective | None:
    """Return a collective on its ranks; None where most of them do not have it equally often.

    One of a file that was cut off has fewer, and which of them is which is not known. Times count
    from `first`.
    """
    present = [
        position for position, number in enumerate(numbers) if message in calls[number].by_message
    ]
    counts = Counter(len(calls[numbers[position]].by_message[message][0]) for position in present)
    usual, _ = counts.most_common(1)[0]
    rank_indices = [
        position
        for position in present
        if len(calls[numbers[position]].by_message[message][0]) == usual
    ]
    listed = set(message.members()) & set(numbers)
    minimum_size = len(numbers) if message.size is None else min(message.size, len(numbers))
    group = (
        len(listed.union(numbers[position] for position in present))
        if listed
        else max(minimum_size, len(present))
    )
    if len(rank_indices) < 2 or len(rank_indices) <= group / 2:
        return None
    begins, ends = zip(
        *(calls[numbers[position]].by_message[message] for position in rank_indices), strict=True
    )
    begin, end = np.stack(begins) - first, np.stack(ends) - first
    return _MatchedCollective(
        message, len(rank_indices) == group, np.array(rank_indices), begin, end
    )


def _on_one_clock(collective: _MatchedCollective, skew: Integers) -> _MatchedCollective:
    ahead = skew[collective.rank_indices, None]
    return dataclasses.replace(
        collective, begin=collective.begin - ahead, end=collective.end - ahead
    )


def _skew(matched: list[_MatchedCollective], ranks: int) -> Integers:
    """Return by how many ns each rank's clock is ahead of the median clock.

    Groups that share a rank share a clock: from the largest group on each moves those that are on
    one clock already all together. Where groups share none, each has a middle of its own.
    """
    ends: dict[tuple[int, ...], list[Integers]] = {}
    for collective in matched:
        ends.setdefault(tuple(collective.rank_indices.tolist()), []).append(collective.end)
    skew, clock = np.zeros(ranks, np.int64), np.arange(ranks)
    for rank_indices in sorted(
        ends, key=lambda group: (-len(group), -sum(e.shape[1] for e in ends[group]))
    ):
        stacked_ends, positions = np.concatenate(ends[rank_indices], axis=1), np.array(rank_indices)
        ahead = np.median(stacked_ends - np.median(stacked_ends, axis=0), axis=1)
        first = int(clock[positions[0]])
        for other in np.unique(clock[positions]).tolist():
            in_clock = clock[positions] == other
            skew[clock == other] += np.int64(np.median(ahead[in_clock] - skew[positions[in_clock]]))
            clock[clock == other] = first
    for number in np.unique(clock).tolist():
        skew[clock == number] -= np.int64(np.median(skew[clock == number]))
    return skew


def _late(collective: _MatchedCollective) -> Integers:
    """Return for each rank the ns that the middle one of the others waited for it as the last."""
    ranks = len(collective.begin)
    ordered = np.sort(collective.begin, axis=0)
    others_begin = np.median(ordered[:-1], axis=0)
    lost = np.maximum(collective.last - others_begin, 0)
    return np.bincount(np.argmax(collective.begin, axis=0), lost, minlength=ranks).astype(np.int64)


def _slow(matched: list[_MatchedCollective], window: float) -> list[SlowCall]:
    origin = min((int(collective.begin.min()) for collective in matched), default=0)
    slow_calls = []
    for collective in matched:
        transfer = collective.transfer
        usual = statistics.median(transfer.tolist())
        longer = (transfer > TIMES * usual) & (transfer - usual > NOTICEABLE * window * 1e9)
        slow_calls += [
            SlowCall(
                name=collective.message.name,
                bytes=collective.message.bytes,
                number=number,
                time=(int(collective.last[number]) - origin) * 1e-9,
                transfer=int(transfer[number]) * 1e-9,
                usual=usual * 1e-9,
            )
            for number in np.flatnonzero(longer).tolist()
        ]
    return slow_calls


def _with_waits(rank: RankTrace, rank_index: int, matched: list[_MatchedCollective]) -> RankTrace:
    waits: dict[tuple[object, ...], list[Integers]] = {}
    for matched_collective in matched:
        for row in np.flatnonzero(matched_collective.rank_indices == rank_index).tolist():
            waits.setdefault(matched_collective.message[:4], []).append(
                matched_collective.wait[row]
            )

    def with_wait(record: Collectives) -> Collectives:
        call_waits = waits.get((record.name, record.dtype, record.bytes, record.group), [])
        if sum(map(len, call_waits)) != record.calls:  # those of some group are not known
            return record
        total_wait = sum(int(wait.sum()) for wait in call_waits) * 1e-9
        transfer = max(record.time - total_wait, 0.0)
        share = bus_share(record.name, record.group) if record.group is not None else None
        fast = record.bytes is not None and share is not None and transfer > 0
        rate = record.bytes * share * record.calls / transfer if fast else None  # type: ignore[operator]
        return msgspec.structs.replace(
            record, wait=total_wait, transfer=transfer, bus_bandwidth=rate
        )

    return msgspec.structs.replace(rank, collectives=tuple(map(with_wait, rank.collectives)))
