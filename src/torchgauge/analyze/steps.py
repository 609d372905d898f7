"""The steps of a recording: which one a time is in."""

from __future__ import annotations

import dataclasses

import numpy as np

from torchgauge.analyze.attribution import NONE
from torchgauge.model.events import Integers, Rows


@dataclasses.dataclass(frozen=True, eq=False)
class Steps:
    """Steps by their begin, in ns; `place` is that of the span that marks each."""

    begin: Integers
    end: Integers
    place: Rows

    def __len__(self) -> int:
        return len(self.begin)

    def at(self, time: Integers) -> Integers:
        """Return in which step each time is, on whatever thread; NONE outside of them."""
        if not len(self):
            return np.full(len(time), NONE)
        found = np.searchsorted(self.begin, time, side="right") - 1
        within = (found >= 0) & (time <= self.end[np.maximum(found, 0)])
        return np.where(within, found, NONE)


def marked(is_step: np.ndarray, start: Integers, end: Integers) -> Steps:
    """Return the steps that these spans mark."""
    place = np.flatnonzero(is_step)
    place = place[np.argsort(start[place], kind="stable")]
    return Steps(start[place], end[place], place)


def whole(start: Integers, end: Integers) -> Steps:
    """Return the whole recording as one step, from the first begin to the last end."""
    return Steps(np.array([start.min()]), np.array([end.max()]), np.array([NONE]))
