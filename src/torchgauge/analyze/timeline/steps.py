"""The steps of a recording: which one a time is in."""

from __future__ import annotations

import dataclasses

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE
from torchgauge.records.trace.events import Integers, Rows


@dataclasses.dataclass(frozen=True, eq=False)
class Steps:
    """Steps by their begin, in ns; `span` is the one that marks each."""

    begin: Integers
    end: Integers
    span: Rows

    def __len__(self) -> int:
        return len(self.begin)

    def containing(self, time: Integers) -> Integers:
        """Return in which step each time is, on whatever thread; NONE outside of them."""
        if not len(self):
            return np.full(len(time), NONE)
        index = np.searchsorted(self.begin, time, side="right") - 1
        within = (index >= 0) & (time <= self.end[np.maximum(index, 0)])
        return np.where(within, index, NONE)


def marked(is_step: np.ndarray, start: Integers, end: Integers) -> Steps:
    """Return the steps that these spans mark."""
    span = np.flatnonzero(is_step)
    span = span[np.argsort(start[span], kind="stable")]
    return Steps(start[span], end[span], span)


def single_step(start: Integers, end: Integers) -> Steps:
    """Return the whole recording as one step, from the first begin to the last end."""
    return Steps(np.array([start.min()]), np.array([end.max()]), np.array([NONE]))
