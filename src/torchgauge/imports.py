"""Libraries that are imported when they are needed, and leave the process as it was."""

from __future__ import annotations

import contextlib
import gc
import importlib
import warnings
from collections.abc import Iterator
from typing import Any


def imported(name: str) -> Any:
    """Return a module. scipy.special sets a filter of warnings when it is imported."""
    with warnings.catch_warnings():
        return importlib.import_module(name)


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Hold off garbage collections in the block, which take a fifth of the time of a large import.

    What an import makes stays, so that there is nothing to collect.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
