"""The collectives of one rank, call by call: what ranks are put side by side by."""

from __future__ import annotations

import dataclasses

import numpy as np

from torchgauge.analyze.collectives import message
from torchgauge.analyze.kernel_facts import Facts
from torchgauge.analyze.pieces import COMMUNICATION, Pieces
from torchgauge.model.events import Integers

Message = tuple[str, str | None, int | None, int | None]
# Not every rank of a group has these, and they do not end together.
_ONE_SIDED = ("send", "recv", "sendrecv")


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
        said = message(facts, place)
        if said[0] not in _ONE_SIDED:
            groups.setdefault(said, []).append(place)
    return Calls(
        {
            said: (pieces.begin[group] + origin, pieces.end[group] + origin)
            for said, group in groups.items()
        }
    )
