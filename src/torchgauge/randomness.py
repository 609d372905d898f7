"""Python's random numbers are the user's: what we import and draw with leaves them as they were.

rich draws from them when it is imported, and for each link that it prints.
"""

from __future__ import annotations

import contextlib

TYPE_CHECKING = False  # typing would be a good part of an import that costs nothing
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def preserved_state() -> Iterator[None]:
    """Put the state of Python's generator back after the block."""
    import random  # `torchgauge --help` needs none

    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
