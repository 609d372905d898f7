"""Garbage collections held off where much is made and nothing is garbage."""

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
