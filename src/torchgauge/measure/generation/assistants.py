"""Time the draft models of assisted decoding while a call uses them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch import nn

from torchgauge.measure.generation.forwards import ThreadForwards, timed
from torchgauge.signals import restoring


class Assistants:
    """Draft models that are timed, with how many calls use each: threads may share one."""

    def __init__(self, of_thread: ThreadForwards) -> None:
        self._of_thread = of_thread
        self._users: dict[int, int] = {}
        self._timers: dict[int, contextlib.ExitStack] = {}
        self._lock = threading.Lock()

    @restoring
    def timed(self, assistant: Any) -> Iterator[None]:
        """Time a draft model until the block ends; None, or what is not a module, is left alone."""
        if not isinstance(assistant, nn.Module):
            yield
            return
        self._begin(assistant)
        try:
            yield
        finally:
            self._end(id(assistant))

    def _begin(self, assistant: nn.Module) -> None:
        key = id(assistant)
        with self._lock:
            self._users[key] = self._users.get(key, 0) + 1
            if self._users[key] == 1:
                timer = self._timers[key] = contextlib.ExitStack()
                timer.enter_context(timed(assistant, "assistant", self._of_thread))

    def _end(self, key: int) -> None:
        with self._lock:
            self._users[key] -= 1
            if not self._users[key]:
                self._timers.pop(key).close()
                del self._users[key]
