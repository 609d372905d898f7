"""The remedy for a model name that a library does not have: similar names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_NAMES = 5


def near_names(name: str, names: Iterable[str], list_code: str) -> str:
    """Return a remedy: the most similar of `names`, and `list_code`, code that prints all."""
    spelled = {known_name.lower(): known_name for known_name in names}
    near = difflib.get_close_matches(name.lower(), spelled, n=MAX_NAMES)
    question = (
        f"Did you mean {', '.join(spelled[known_name] for known_name in near)}? " if near else ""
    )
    return f'{question}To see all names: python -c "{list_code}"'
