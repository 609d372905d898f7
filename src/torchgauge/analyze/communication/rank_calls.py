"""The collectives of one rank, call by call, as ranks are compared by them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import msgspec
import numpy as np

from torchgauge.analyze.communication.collectives import item_bytes, message
from torchgauge.analyze.trace.device_work import COMMUNICATION, Activities
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.records.trace.events import Integers

# Not every rank of a group has these, and they do not end together.
_ONE_SIDED = ("send", "recv", "sendrecv", "put", "get")
_EXCHANGES = ("alltoall", "alltoallv")
_integers = msgspec.json.Decoder(tuple[int, ...]).decode


class Message(NamedTuple):
    """Key of matching calls: the collective, and the group it ran in.

    Groups of one size are told apart by `group` and `ranks`, as the trace names them: a name alone
    may be that of several, and the list of a large group is cut short.
    """

    name: str
    dtype: str | None
    bytes: int | None
    size: int | None
    group: str | None = None
    ranks: str | None = None

    def members(self) -> Collection[int]:
        """Return the ranks of the group, none where the trace does not list all of them."""
        try:
            return frozenset(msgspec.json.decode(self.ranks or "[]", type=list[int]))
        except msgspec.MsgspecError:
            return ()


@dataclasses.dataclass(frozen=True, eq=False)
class Calls:
    """Begin and end of each call in ns of the rank's clock, by message, in order of begin.

    `steps` are the numbers of the marked steps that launched the calls, ABSENT outside of them; a
    message without an entry has none.
    """

    by_message: dict[Message, tuple[Integers, Integers]]
    steps: dict[Message, Integers] = dataclasses.field(default_factory=dict)


def rank_calls(
    activities: Activities, facts: Facts, origin: int, steps: Integers | None = None
) -> Calls:
    """Return the calls of all collectives that a whole group takes part in.

    `origin` is what the times of `activities` count from, in ns of the rank's clock; `steps` are
    the numbers of their marked steps, None where none is marked.
    """
    groups: dict[Message, list[int]] = {}
    indices = np.flatnonzero(activities.kind == COMMUNICATION)
    for index in indices[np.argsort(activities.begin[indices], kind="stable")].tolist():
        key = Message(*message(facts, index), facts.group[index], facts.group_ranks[index])
        if key.name not in _ONE_SIDED:
            groups.setdefault(key, []).append(index)
    return Calls(
        {
            key: (activities.begin[group] + origin, activities.end[group] + origin)
            for key, group in groups.items()
        },
        {} if steps is None else {key: steps[group] for key, group in groups.items()},
    )


def sent_to_ranks(activities: Activities, facts: Facts) -> dict[int, int]:
    """Return the bytes that a rank sends in all-to-alls, by the rank that gets them.

    Nothing where any of them does not tell its sizes or the ranks of its group: the sum of the rest
    would be taken for the whole.
    """
    calls: Counter[tuple[str | None, str | None, int, str | None]] = Counter()
    for index in np.flatnonzero(activities.kind == COMMUNICATION).tolist():
        if message(facts, index)[0] in _EXCHANGES:
            ranks, split = facts.group_ranks[index], facts.split_in[index]
            calls[ranks, split, int(facts.elements[index]), facts.dtype[index]] += 1
    sent: Counter[int] = Counter()
    for (ranks, split, elements, dtype), count in calls.items():
        members, shares = _listed(ranks), _listed(split)
        width = item_bytes(dtype)
        if not members or shares is None or elements < 0 or width is None:
            return {}
        rows = shares or (1,) * len(members)
        if len(rows) != len(members) or min(rows) < 0 or (elements and not sum(rows)):
            return {}
        for member, share in zip(members, rows, strict=True):
            sent[member] += count * width * (elements * share // sum(rows) if share else 0)
    return dict(sorted(sent.items()))


def _listed(text: str | None) -> tuple[int, ...] | None:
    """Return a list of numbers, None where it is absent or cut short."""
    try:
        return None if text is None else _integers(text)
    except msgspec.MsgspecError:
        return None
