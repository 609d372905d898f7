"""Stamps: when each module call began and ended, with nothing else attached; what they cost."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from torchgauge.analyze.timeline.call_tree import Call
from torchgauge.analyze.timeline.residual import StampCost
from torchgauge.measure.recording.capture_limit import OwnThreads
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.scope import wrapped
from torchgauge.measure.work.internals import graph_task
from torchgauge.targets.hygiene import module_of

Note = tuple[nn.Module, int, int, int, bool]
_FIELDS = 5
ROUNDS = 9
CALLS = 100


class Stamps:
    """Notes every module call on every thread while `watching`; `take_calls` hands the notes over.

    With `threads` those of other threads are dropped, but for what autograd's recompute.
    It costs 0.6 to 1.4 µs a call, by how warm the caches are: one note, made when the call ends.
    What it costs in a model is told by two of these at once; see `analyze/timeline/residual.py`.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        modules: Modules | None = None,
        now: Callable[[], int] = time.perf_counter_ns,
        threads: OwnThreads | None = None,
    ) -> None:
        self.modules = modules or Modules(model)
        self._model = model
        self._now = now
        self._threads = threads
        self._notes: list[Any] = []  # flat: kept objects make Python collect garbage

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """Take stamps until the block ends."""
        module = module_of(self._model)
        return wrapped(self._wrap, () if module is None else module.modules())

    def take_calls(self, left_out: Sequence[tuple[int, int, int]] = ()) -> list[Call]:
        """Return the calls that have ended since the last time, in the order of their ends.

        Those that began in what is `left_out` (thread, begin and end in ns) are not among them.
        """
        flat, self._notes[:] = self._notes[:], []
        notes: list[Note] = list(zip(*[iter(flat)] * _FIELDS, strict=True))
        for thread, begin, end in left_out:
            notes = [note for note in notes if note[1] != thread or not begin <= note[2] < end]
        if self._threads is not None:
            own = self._threads.idents()
            notes = [note for note in notes if note[1] in own or note[4]]
        for module, *_ in sorted(notes, key=lambda note: note[2]):  # as they were called
            self.modules.number(module)
        number = self.modules.number
        return [
            Call(number(module), thread, start, end, recomputed)
            for module, thread, start, end, recomputed in notes
        ]

    def _wrap(self, original: Callable[..., Any], inner: frozenset[type]) -> Callable[..., Any]:
        return stamping(original, inner, self._notes.extend, self._now)


def stamping(
    original: Callable[..., Any],
    inner: frozenset[type],
    note: Callable[[Note], object],
    now: Callable[[], int],
) -> Callable[..., Any]:
    """Return a `__call__` that hands `note` each call of `original` with its begin and end.

    Between the two readings is as little of its own as can be.
    """
    compiling, thread = torch.compiler.is_compiling, threading.get_ident

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if compiling() or type(self) in inner:
            return original(self, *args, **kwargs)
        recomputed = graph_task() != -1
        start = now()
        try:
            return original(self, *args, **kwargs)
        finally:
            end = now()
            note((self, thread(), start, end, recomputed))

    return __call__


class _Callee:
    """Called as a module is, and no module: torch's and the user's hooks never see it."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


def calibrated(now: Callable[[], int]) -> StampCost:
    """Return the cost of a stamp with warm caches, and the share of it inside its readings.

    The share also holds in a model, where a stamp costs more; see `analyze/timeline/residual.py`.
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
