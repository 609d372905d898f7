"""What a model or a function is called."""

from __future__ import annotations

from typing import Any


def name_of(what: Any) -> str:
    """Return the name of a function or a class, of anything else that of its class.

    An object may answer anything when it is asked for a name, or raise.
    """
    try:
        name = what.__qualname__
    except Exception:  # noqa: BLE001 - it is the user's own code
        name = None
    return name if isinstance(name, str) else type(what).__qualname__
