"""What to say of a library's name that it does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST = 5


def near_names(name: str, known: Iterable[str], every: str) -> str:
    """Return a remedy: the known names most like it, in any case, and `every`, code for all."""
    spelled = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=MOST)
    asked = f"Did you mean {', '.join(spelled[one] for one in near)}? " if near else ""
    return f'{asked}To see all names: python -c "{every}"'
