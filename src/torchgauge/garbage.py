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
    """Holds still the collector's count of new objects where somebody else's program waits.

    A collection comes once so many more objects were made than freed. What we make and keep would
    bring those of the program nearer; so as many others are freed, which were made for that.
    """

    def __init__(self, spare: int = 10_000) -> None:
        enabled = gc.isenabled()
        with no_collections():
            # Of all objects that the collector counts these are the smallest that are not reused.
            self._spare: list[object] = [iter(()) for _ in range(spare)]
            if enabled:
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
                if growth > 0:
                    del self._spare[-growth:]
                else:
                    self._spare += [iter(()) for _ in range(-growth)]
