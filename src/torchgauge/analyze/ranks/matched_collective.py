"""One collective side by side on the ranks of its group."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.communication.rank_calls import Message
from torchgauge.records.trace.events import Fractions, Integers


class LastRanks(NamedTuple):
    """Who was the last, by call, and the ns that the middle one of the others waited for it."""

    rank_index: Integers
    late: Fractions


@dataclasses.dataclass(frozen=True, eq=False)
class MatchedCollective:
    """One collective on the ranks of its group, in ns of one clock: ranks × calls.

    `rank_indices` are those of the ranks among all of the job; `complete` where none of them has it
    less or more often than most have, and is left out. `step` is the marked step of each call,
    ABSENT outside of them.
    """

    message: Message
    complete: bool
    rank_indices: Integers
    begin: Integers
    end: Integers
    step: Integers

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

    @property
    def last_ranks(self) -> LastRanks:
        """Who was waited for in each call."""
        others_begin = np.median(np.sort(self.begin, axis=0)[:-1], axis=0)
        late = np.maximum(self.last - others_begin, 0)
        return LastRanks(self.rank_indices[np.argmax(self.begin, axis=0)], late)

    def without(self, rank_indices: list[int]) -> MatchedCollective | None:
        """Return it without these ranks; None where fewer than two are left."""
        rows = np.flatnonzero(~np.isin(self.rank_indices, rank_indices))
        if len(rows) < 2:
            return None
        return dataclasses.replace(
            self, rank_indices=self.rank_indices[rows], begin=self.begin[rows], end=self.end[rows]
        )
