"""Stamps: when each module call began and ended, with nothing else attached."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchgauge.analyze.call_tree import Call
from torchgauge.measure.internals import graph_task
from torchgauge.measure.modules import Modules
from torchgauge.measure.scope import wrapped
from torchgauge.target.hygiene import module_of


class Stamps:
    """Notes every module call on every thread while `watching`; `taken` hands the notes over.

    It costs some 0.6 µs a call: one note, made when the call ends.
    """

    def __init__(
        self, model: Callable[..., Any], now: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self.modules = Modules(model)
        self._model = model
        self._now = now
        self._notes: list[tuple[nn.Module, int, int, int, bool, bool]] = []

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """Take stamps until the block ends."""
        module = module_of(self._model)
        return wrapped(self._wrap, () if module is None else module.modules())

    def taken(self) -> list[Call]:
        """Return the calls that have ended since the last time, in the order of their ends."""
        notes, self._notes[:] = self._notes[:], []
        number = self.modules.number
        calls: dict[int, Call] = {}
        inner: dict[int, tuple[int, nn.Module]] = {}
        for place, (module, thread, start, end, again, base) in enumerate(notes):
            if base:
                inner[thread] = place, module
            elif thread in inner and inner[thread][1] is module:
                # A class that overrides `__call__` went on to nn.Module's: that is the same call.
                within = inner.pop(thread)[0]
                if within in calls and calls[within].start >= start:
                    del calls[within]
            calls[place] = Call(number(module), thread, start, end, again)
        return list(calls.values())

    def _wrap(self, original: Callable[..., Any], *, base: bool) -> Callable[..., Any]:
        compiling, now, thread = torch.compiler.is_compiling, self._now, threading.get_ident
        note = self._notes.append

        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if compiling():
                return original(self, *args, **kwargs)
            again = graph_task() != -1
            start = now()
            try:
                return original(self, *args, **kwargs)
            finally:
                note((self, thread(), start, now(), again, base))

        return __call__
