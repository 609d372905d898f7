"""Which lines of the program read a tensor's value, as `item()` does, and wait for it."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import torch

from torchgauge.measure.loop.loader_waits import in_loader
from torchgauge.measure.work.internals import is_torchs, never_compiled
from torchgauge.records.timeline.loop import ScalarCalls
from torchgauge.signals import replaced

_METHODS = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__")
MOST_SITES = 10


class ScalarReads:
    """Counts them by the line of the program, without those of torch and of loaders."""

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now
        self._inside = threading.local()
        self.forget()

    def forget(self) -> None:
        """Count from now on."""
        self._calls: Counter[tuple[str, int, str]] = Counter()
        self._times: Counter[tuple[str, int, str]] = Counter()

    def watching(self) -> AbstractContextManager[None]:
        """Count calls of all threads until the block ends."""
        tensors = torch.Tensor
        return replaced(
            (tensors, name, self._counted(name, getattr(tensors, name))) for name in _METHODS
        )

    def per_step(self, steps: int) -> tuple[ScalarCalls, ...]:
        """Return the lines that take most of a step, of as many steps as were watched."""
        return tuple(
            ScalarCalls(
                file=file,
                line=line,
                call=call,
                calls=self._calls[file, line, call] / steps,
                time=time * 1e-9 / steps,
            )
            for (file, line, call), time in self._times.most_common(MOST_SITES)
            if steps
        )

    def _counted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        inside, now, note = self._inside, self._now, self._note
        compiling = torch.compiler.is_compiling

        @functools.wraps(original)
        def read(*args: Any, **kwargs: Any) -> Any:
            # __index__ may call item.
            if compiling() or in_loader() or getattr(inside, "reading", False):
                return original(*args, **kwargs)
            inside.reading = True
            began = now()
            try:
                return original(*args, **kwargs)
            finally:
                inside.reading = False
                note(sys._getframe(1), name, now() - began)  # noqa: SLF001

        never_compiled(read)
        return read

    def _note(self, frame: FrameType, name: str, took: int) -> None:
        if not is_torchs(frame):
            file = frame.f_code.co_filename
            self._calls[file, frame.f_lineno, name] += 1
            self._times[file, frame.f_lineno, name] += took
