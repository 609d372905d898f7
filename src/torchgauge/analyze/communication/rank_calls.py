"""The collectives of one rank, call by call, as ranks are compared by them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import NamedTuple

import msgspec
import numpy as np

from torchgauge.analyze.communication.collectives import message
from torchgauge.analyze.trace.device_work import COMMUNICATION, Activities
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.records.trace.events import Integers

# Not every rank of a group has these, and they do not end together.
_ONE_SIDED = ("send", "recv", "sendrecv", "put", "get")


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
