"""All-to-alls whose ranks send and receive differently much, as one collective on all of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from torchgauge.analyze.communication.collectives import Calls, Message
from torchgauge.records.trace.events import ABSENT, Integers

_UNEVEN = ("alltoall", "alltoallv")
# The bytes of each call of a rank, by message; a message that is not here has one size.
Sizes = dict[Message, Integers]


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
