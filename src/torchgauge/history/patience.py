"""Waiting for one's turn to write: again after a random pause, and not for ever."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from torchgauge.errors import StoreError

# No write waits longer, in seconds; what could not be written by then is kept in a file.
LONGEST_WAIT = 30.0
# One try waits so long inside the database; pauses between tries are drawn up to as much.
ONE_TRY = 0.05

Result = TypeVar("Result")


def patiently(
    work: Callable[[], Result],
    *,
    longest: float = LONGEST_WAIT,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    draw: Callable[[float, float], float] = random.uniform,
) -> Result:
    """Return what `work` returns; while the store is busy it is tried again, for `longest` seconds.

    Pauses are random: writers that failed together do not come back together. Raises StoreError
    `store-busy` at the end, and at once whatever else `work` raises.
    """
    begun = now()
    while True:
        try:
            return work()
        except StoreError as error:
            if error.id != "store-busy" or now() - begun >= longest:
                raise
        sleep(min(draw(0.001, ONE_TRY), max(longest - (now() - begun), 0.0)))
