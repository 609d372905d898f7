"""Room for frames of torchgauge's own, so that a model may nest as deep as it can without."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from torchgauge.signals import restoring

# Below the model's first frame and above its last one.
FRAMES = 200

_lock = threading.Lock()
_added = 0


def recursion_limit() -> int:
    """Return the limit that the program runs under, without what is added for a while."""
    return sys.getrecursionlimit() - _added


def set_recursion_limit(limit: int) -> None:
    """Set the limit that the program runs under; what is added for a while stays added."""
    with _lock:
        sys.setrecursionlimit(limit + _added)


@restoring
def deeper(frames: int) -> Iterator[None]:
    """Let Python recurse deeper by as many frames, on every thread, until the block ends."""
    _add(frames)
    try:
        yield
    finally:
        _add(-frames)


def _add(frames: int) -> None:
    global _added
    with _lock:
        _added += frames
        # Refused where the block ends in a deeper frame than the program may have.
        with contextlib.suppress(RecursionError, ValueError):
            sys.setrecursionlimit(sys.getrecursionlimit() + frames)
