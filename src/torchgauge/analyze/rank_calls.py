"""The collectives of one rank, call by call: what ranks are put side by side by."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import NamedTuple

import msgspec
import numpy as np

from torchgauge.analyze.collectives import message
from torchgauge.analyze.kernel_facts import Facts
from torchgauge.analyze.pieces import COMMUNICATION, Pieces
from torchgauge.model.events import Integers

# Not every rank of a group has these, and they do not end together.
_ONE_SIDED = ("send", "recv", "sendrecv")


class Message(NamedTuple):
    """What calls that belong together have in common: the collective, and the group it ran in.

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
    """Begin and end of each call in ns of the rank's clock, by message, in order of begin."""

    of: dict[Message, tuple[Integers, Integers]]


def rank_calls(pieces: Pieces, facts: Facts, origin: int) -> Calls:
    """Return the calls of all collectives that a whole group takes part in.

    `origin` is what the times of `pieces` count from, in ns of the rank's clock.
    """
    groups: dict[Message, list[int]] = {}
    places = np.flatnonzero(pieces.kind == COMMUNICATION)
    for place in places[np.argsort(pieces.begin[places], kind="stable")].tolist():
        said = Message(*message(facts, place), facts.group[place], facts.group_ranks[place])
        if said.name not in _ONE_SIDED:
            groups.setdefault(said, []).append(place)
    return Calls(
        {
            said: (pieces.begin[group] + origin, pieces.end[group] + origin)
            for said, group in groups.items()
        }
    )
