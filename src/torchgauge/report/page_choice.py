"""What a page shows one of at a time: the ranks of a job, the devices of a snapshot."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple


class Option(NamedTuple):
    """One of them, with its parts of the page; a part that is None is left out."""

    name: str
    parts: dict[str, Any]


class Choice(NamedTuple):
    """What is chosen from (`label`), and the option that is shown first."""

    label: str
    options: list[Option]
    first: int = 0

    def without(self, names: Collection[str]) -> Choice:
        """Return the choice without the parts of these names, and without those that are None."""
        kept = [
            Option(
                one.name,
                {k: v for k, v in one.parts.items() if v is not None and k not in names},
            )
            for one in self.options
        ]
        return self._replace(options=kept)
