"""Garbage collections held off, and their count held still, where we make what stays."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Hold off garbage collections in the block.

    They search all that is new for cycles, which takes a fifth of the time of a large import, of
    reading a snapshot or of making a page, where all of it stays.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class CollectorCount:
    """Holds still the collector's count of new objects, amid another's program.

    What we make and keep would bring its next collection nearer: as many others are freed for it.
    """

    def __init__(self, spare: int = 10_000) -> None:
        with no_collections():
            self._spare: list[object] = [iter(()) for _ in range(spare)]  # small, never reused
        if gc.isenabled():
            gc.collect(0)  # counts from 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Collect nothing in the block, and leave the count as it was before."""
        with no_collections():
            before = gc.get_count()[0]
            try:
                yield
            finally:
                growth = gc.get_count()[0] - before
                del self._spare[len(self._spare) - growth :]
