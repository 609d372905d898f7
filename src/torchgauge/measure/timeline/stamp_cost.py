"""Calibrate the cost of a stamp: empty calls, stamped and bare, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from torchgauge.analyze.timeline.stamp_cost import StampCost
from torchgauge.measure.timeline.stamps import Note, stamping

ROUNDS = 9
CALLS = 100


class _Callee:
    """Called as a module is, and no module: torch's and the user's hooks never see it."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


def calibrated(now: Callable[[], int]) -> StampCost:
    """Return the cost of a stamp with warm caches, and the share of it inside its readings.

    The share also holds in a model, where a stamp costs more; see `analyze/timeline/stamp_cost.py`.
    """
    notes: list[Note] = []
    call = stamping(_Callee.__call__, frozenset(), notes.append, now)
    stamped_type = type("_StampedCallee", (), {"__call__": call})
    empty_loop, bare, stamped, read = [], [], [], []
    for _ in range(ROUNDS):
        empty_loop.append(_turn_time(None, now))
        bare.append(_turn_time(_Callee(), now))
        notes.clear()
        stamped.append(_turn_time(stamped_type(), now))
        read += [end - start for _, _, start, end, _ in notes]
    a_call = statistics.median(bare) - statistics.median(empty_loop)
    stamp_time = statistics.median(stamped) - statistics.median(bare)
    within = statistics.median(read) - a_call
    if stamp_time <= 0:  # a clock too coarse to tell
        return StampCost(by_layer={}, median=0.0, inside=0.0)
    return StampCost(by_layer={}, median=stamp_time, inside=min(1.0, max(0.0, within / stamp_time)))


def _turn_time(callee: Callable[[], object] | None, now: Callable[[], int]) -> float:
    """Return the ns of one turn of a loop that makes the call, or of one that makes none."""
    start = now()
    if callee is None:
        for _ in range(CALLS):
            pass
    else:
        for _ in range(CALLS):
            callee()
    return (now() - start) / CALLS
