"""How a measuring process ended."""

from __future__ import annotations

from typing import NamedTuple


class ChildEnd(NamedTuple):
    """Its exit code, negative for a signal; `late` says that we killed it after its time."""

    code: int
    late: bool = False
    interrupted: bool = False
