"""Ranks side by side: who waits for whom, which collective was slow, which messages uneven.

A collective ends on all ranks at once, so that its ends say by how much the ranks' clocks differ.
On one clock the time until the last rank has begun is waiting, and the rest is transfer.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from torchgauge.analyze.communication.collectives import Calls, Message, bus_share
from torchgauge.analyze.communication.communication_kernels import collective_of
from torchgauge.analyze.ranks.stragglers import MatchedCollective, late_totals, stragglers
from torchgauge.records.timeline.node import base_name
from torchgauge.records.trace.events import ABSENT, Integers
from torchgauge.records.trace.ranks import Differing, LateCall, RankDifference
from torchgauge.records.trace.trace import Collectives, Job, RankTrace, RankWait, SlowCall

# Calls differ by chance: what is less is neither slow nor late.
NOTICEABLE = 0.02  # of the window
TIMES = 2.0  # the usual transfer
_UNEVEN = ("alltoall", "alltoallv")
# The bytes of each call of a rank, by message; a message that is not here has one size.
Sizes = dict[Message, Integers]


def job(ranks: Mapping[int, RankTrace], calls: Mapping[int, Calls]) -> tuple[Job, list[RankTrace]]:
    """Return the comparison of the ranks, and each rank with waiting split from transfer."""
    numbers = sorted(ranks)
    calls, sizes = with_uneven_joined(calls)
    uneven = {message for of_rank in sizes.values() for message in of_rank}
    messages = {message for number in numbers for message in calls[number].by_message}
    first = _first(calls)
    candidates = (_matched(message, numbers, calls, first) for message in sorted(messages, key=str))
    matched = [collective for collective in candidates if collective is not None]
    skew = _skew(matched, len(numbers))
    aligned = [_on_one_clock(collective, skew) for collective in matched]
    window = max(rank.window for rank in ranks.values())
    named = list(stragglers(aligned, numbers, window)) if aligned else []
    late_ranks = {straggler.rank for straggler in named}
    other_ranks = [ranks[number] for number in numbers if number not in late_ranks]
    most_lost = max(named, key=lambda straggler: straggler.lost, default=None)
    result = Job(
        calls=sum(collective.begin.shape[1] for collective in aligned),
        waits=tuple(_waits(ranks, aligned, skew)),
        slow=tuple(
            sorted(_slow(aligned, window, uneven), key=lambda call: call.usual - call.transfer)
        ),
        late=tuple(sorted(_late(aligned, numbers, window), key=lambda call: -call.late)),
        stragglers=tuple(
            msgspec.structs.replace(
                straggler,
                differences=differences(ranks[straggler.rank], other_ranks, straggler.lost),
            )
            for straggler in named
        )
        if other_ranks
        else tuple(named),
        straggler=None if most_lost is None else most_lost.rank,
        lost=None if most_lost is None else most_lost.lost,
        unmatched=len(messages) - sum(collective.complete for collective in matched),
    )
    return result, [
        _with_waits(ranks[number], rank_index, aligned, sizes[number])
        for rank_index, number in enumerate(numbers)
    ]


def _waits(
    ranks: Mapping[int, RankTrace], aligned: list[MatchedCollective], skew: Integers
) -> Iterator[RankWait]:
    """Yield the waits of each rank that takes part in any collective, in order of number."""
    numbers = sorted(ranks)
    waits, taking_part = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.bool_)
    for collective in aligned:
        waits[collective.rank_indices] += collective.wait.sum(axis=1)
        taking_part[collective.rank_indices] = True
    late = late_totals(aligned, len(numbers))
    kernel_times = relative_kernel_times([ranks[number] for number in numbers])
    for index in np.flatnonzero(taking_part).tolist():
        yield RankWait(
            rank=numbers[index],
            waits=int(waits[index]) * 1e-9,
            waited_for=int(late[index]) * 1e-9,
            skew=int(skew[index]) * 1e-9,
            kernel_time=kernel_times[index],
        )


def _first(calls: Mapping[int, Calls]) -> int:
    """Return when the first call of all began: medians of ns since 1970 are off by up to 128."""
    begins = (begin for rank in calls.values() for begin, _ in rank.by_message.values())
    return min((int(begin.min()) for begin in begins), default=0)


def _matched(
    message: Message, numbers: list[int], calls: Mapping[int, Calls], first: int
) -> MatchedCollective | None:
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
    step = calls[numbers[rank_indices[0]]].steps.get(message)
    return MatchedCollective(
        message,
        complete=len(rank_indices) == group,
        rank_indices=np.array(rank_indices),
        begin=begin,
        end=end,
        step=np.full(begin.shape[1], ABSENT) if step is None else step,
    )


def _on_one_clock(collective: MatchedCollective, skew: Integers) -> MatchedCollective:
    ahead = skew[collective.rank_indices, None]
    return dataclasses.replace(
        collective, begin=collective.begin - ahead, end=collective.end - ahead
    )


def _skew(matched: list[MatchedCollective], ranks: int) -> Integers:
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


def _late(
    matched: list[MatchedCollective], numbers: list[int], window: float
) -> Iterator[LateCall]:
    """Yield the calls in which the others waited long for one rank."""
    origin = min((int(collective.begin.min()) for collective in matched), default=0)
    for collective in matched:
        rank_index, late = collective.last_ranks
        for number in np.flatnonzero(late > NOTICEABLE * window * 1e9).tolist():
            yield LateCall(
                name=collective.message.name,
                bytes=collective.message.bytes,
                number=number,
                time=(int(collective.last[number]) - origin) * 1e-9,
                rank=numbers[rank_index[number]],
                late=float(late[number]) * 1e-9,
            )


def _slow(matched: list[MatchedCollective], window: float, uneven: set[Message]) -> list[SlowCall]:
    origin = min((int(collective.begin.min()) for collective in matched), default=0)
    slow_calls = []
    for collective in matched:
        if collective.message in uneven:
            continue  # calls of different sizes take differently long
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


def _with_waits(
    rank: RankTrace, rank_index: int, matched: list[MatchedCollective], sizes: Sizes
) -> RankTrace:
    waits: dict[tuple[object, ...], list[Integers]] = {}
    for collective in matched:
        name, dtype, usual_size, group = collective.message[:4]
        for wait in collective.wait[collective.rank_indices == rank_index]:
            usual = np.full(len(wait), ABSENT if usual_size is None else usual_size)
            size_of_call = sizes.get(collective.message, usual)
            for size in np.unique(size_of_call).tolist():
                key = (name, dtype, None if size == ABSENT else size, group)
                waits.setdefault(key, []).append(wait[size_of_call == size])

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


def with_uneven_joined(calls: Mapping[int, Calls]) -> tuple[dict[int, Calls], dict[int, Sizes]]:
    """Return the calls with the all-to-alls of a group as one message where sizes differ by rank.

    They are the same calls on all ranks in the same order, whatever each has to send.
    """
    joined = _uneven_messages(calls)
    sizes: dict[int, Sizes] = {number: {} for number in calls}
    result = {}
    for number, rank in calls.items():
        groups: dict[Message, list[Message]] = {}
        for message in rank.by_message:
            unsized = message._replace(bytes=None)
            groups.setdefault(unsized if unsized in joined else message, []).append(message)
        by_message, steps = {}, {}
        for unsized, messages in groups.items():
            if messages == [unsized]:
                by_message[unsized] = rank.by_message[unsized]
                if unsized in rank.steps:
                    steps[unsized] = rank.steps[unsized]
                continue
            begin, end = (
                np.concatenate([rank.by_message[message][side] for message in messages])
                for side in (0, 1)
            )
            order = np.argsort(begin, kind="stable")
            by_message[unsized] = (begin[order], end[order])
            sizes[number][unsized] = np.concatenate(
                [_repeated(message.bytes, rank.by_message[message][0]) for message in messages]
            )[order]
            if all(message in rank.steps for message in messages):
                steps[unsized] = np.concatenate([rank.steps[message] for message in messages])[
                    order
                ]
        result[number] = Calls(by_message, steps)
    return result, sizes


def _uneven_messages(calls: Mapping[int, Calls]) -> set[Message]:
    """Return, without their sizes, the all-to-alls whose calls by size differ between ranks."""
    by_rank: dict[Message, dict[int, dict[int | None, int]]] = {}
    for number, rank in calls.items():
        for message, (begin, _) in rank.by_message.items():
            if message.name in _UNEVEN:
                counts = by_rank.setdefault(message._replace(bytes=None), {})
                counts.setdefault(number, {})[message.bytes] = len(begin)
    return {
        message
        for message, counts in by_rank.items()
        if any(count != next(iter(counts.values())) for count in counts.values())
    }


def _repeated(size: int | None, calls: Integers) -> Integers:
    return np.full(len(calls), ABSENT if size is None else size)


_Kernel = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]
_Durations = dict[_Kernel, tuple[float, int]]
# Of what is lost: less explains nothing.
NOTICEABLE_DIFFERENCE = 0.1
# Others that it is compared with: their median needs no more.
MAX_OTHERS = 16
INPUT = "enumerate(DataLoader)"
MIN_SHARED_KERNELS = 3


def differences(
    rank: RankTrace, other_ranks: Sequence[RankTrace], lost: float
) -> tuple[RankDifference, ...]:
    """Return what a rank has more of than the median of the others, most first."""
    compared = other_ranks[:MAX_OTHERS]
    result = []
    for aspect, seconds in _FIGURES.items():
        extra_time = seconds(rank) - statistics.median(map(seconds, compared))
        name = _most_more(_synchronisations, rank, compared)[0] if aspect in _NAMED else ""
        result.append(RankDifference(aspect=aspect, extra_time=extra_time, name=name))
    operator, extra_time = _most_more(_host_times, rank, compared)
    result.append(RankDifference(aspect="host", extra_time=extra_time, name=operator))
    noticeable = [
        difference for difference in result if difference.extra_time > NOTICEABLE_DIFFERENCE * lost
    ]
    return tuple(sorted(noticeable, key=lambda difference: -difference.extra_time))


def _host_wait(rank: RankTrace) -> float:
    return sum(device.breakdown.idle.host_wait for device in rank.times)


_FIGURES: dict[Differing, Callable[[RankTrace], float]] = {
    "kernels": lambda rank: sum(device.breakdown.compute for device in rank.times),
    "copies": lambda rank: sum(device.breakdown.copies for device in rank.times),
    "waiting for the host": _host_wait,
    "input": lambda rank: sum(
        node.host_time or 0.0
        for node in rank.tree.nodes
        if node.name.startswith(INPUT)
        and (node.parent is None or not node.parent.name.startswith(INPUT))
    ),
    "synchronisations": lambda rank: sum(wait.time for wait in rank.synchronisations),
}
_NAMED = ("synchronisations",)


def _synchronisations(rank: RankTrace) -> dict[str, float]:
    times: dict[str, float] = {}
    for wait in rank.synchronisations:
        name = wait.operator or wait.call
        times[name] = times.get(name, 0.0) + wait.time
    return times


def _host_times(rank: RankTrace) -> dict[str, float]:
    times: dict[str, float] = {}
    for node in rank.tree.nodes:
        if node.kind == "operator" and node.host_time_self:
            name = base_name(node.name)
            times[name] = times.get(name, 0.0) + node.host_time_self
    return times


def _most_more(
    figures: Callable[[RankTrace], dict[str, float]],
    rank: RankTrace,
    other_ranks: Sequence[RankTrace],
) -> tuple[str, float]:
    """Return the name that a rank has most more of than the median of others, and how much."""
    own, of_others = figures(rank), [figures(other) for other in other_ranks]
    extra_time = {
        name: time - statistics.median(other.get(name, 0.0) for other in of_others)
        for name, time in own.items()
    }
    name = max(extra_time, key=lambda name: extra_time[name], default="")
    return name, extra_time.get(name, 0.0)


def relative_kernel_times(ranks: Sequence[RankTrace]) -> list[float | None]:
    """Return by rank how long its kernels take, relative to the same kernels of the median rank.

    The median over the kernels that most ranks have, weighted with their time. The same are those
    of one name and launch configuration that compute. None where too few are shared.
    """
    medians = [_kernel_medians(rank) for rank in ranks]
    usual: dict[_Kernel, float] = {}
    for kernel in {kernel for of_rank in medians for kernel in of_rank}:
        times = [of_rank[kernel][0] for of_rank in medians if kernel in of_rank]
        if len(times) > len(ranks) / 2 and (median := statistics.median(times)) > 0:
            usual[kernel] = median
    return [_relative(of_rank, usual) for of_rank in medians]


def _kernel_medians(rank: RankTrace) -> _Durations:
    """Return the median ns of each kernel that computes, and how often it ran."""
    durations: dict[_Kernel, list[tuple[int, ...]]] = {}
    for row in rank.tree.rows:
        kernel = row.kernel
        if kernel is None or kernel.work != "kernel" or kernel.collective is not None:
            continue
        if collective_of(row.name) is None:
            durations.setdefault((row.name, kernel.grid, kernel.block), []).append(kernel.durations)
    return {
        kernel: (float(np.median(np.concatenate(parts))), sum(map(len, parts)))
        for kernel, parts in durations.items()
    }


def _relative(
    of_rank: dict[_Kernel, tuple[float, int]], usual: dict[_Kernel, float]
) -> float | None:
    shared = [kernel for kernel in of_rank if kernel in usual]
    if len(shared) < MIN_SHARED_KERNELS:
        return None
    ratio = np.array([of_rank[kernel][0] / usual[kernel] for kernel in shared])
    weight = np.array([usual[kernel] * of_rank[kernel][1] for kernel in shared])
    order = np.argsort(ratio)
    reached = np.cumsum(weight[order])
    return float(ratio[order][np.searchsorted(reached, reached[-1] / 2)])
