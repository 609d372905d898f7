"""Libraries that are imported when they are needed, and leave the process as it was."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


def imported(name: str) -> Any:
    """Return a module. scipy.special sets a filter of warnings when it is imported."""
    with warnings.catch_warnings():
        return importlib.import_module(name)
