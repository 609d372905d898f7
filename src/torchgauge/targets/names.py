"""The name of a model or a function."""

from __future__ import annotations

from typing import Any


def name_of(value: Any) -> str:
    """Return the name of a function or a class, for any other object that of its class.

    An object may answer anything when it is asked for a name, or raise.
    """
    try:
        name = value.__qualname__
    except Exception:  # noqa: BLE001 - it is the user's own code
        name = None
    return name if isinstance(name, str) else type(value).__qualname__
