"""When a batch starts: dynamic batching as inference servers do it, without a clock of its own."""

from __future__ import annotations

import math
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """Requests that wait, in the order in which they came.

    A batch starts when a worker is free and either `max_batch` requests wait or the first of them
    has waited for `max_delay` seconds.
    """

    def __init__(self, max_batch: int, max_delay: float) -> None:
        self.max_batch = max_batch
        self.max_delay = max_delay
        self._waiting: deque[tuple[float, T]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, now: float, request: T) -> None:
        """Add a request that came at `now`."""
        self._waiting.append((now, request))

    def due(self) -> float:
        """Return when the next batch may start: −∞ if it is full, ∞ if nothing waits."""
        if len(self._waiting) >= self.max_batch:
            return -math.inf
        return self._waiting[0][0] + self.max_delay if self._waiting else math.inf

    def take(self) -> list[T]:
        """Return the next batch, and wait for these no longer."""
        size = min(self.max_batch, len(self._waiting))
        return [self._waiting.popleft()[1] for _ in range(size)]
