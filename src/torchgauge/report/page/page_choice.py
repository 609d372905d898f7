"""Options of which a page shows one at a time: a job's ranks, a snapshot's devices."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple


class Option(NamedTuple):
    """An option with its parts of the page; a part that is None is left out."""

    name: str
    parts: dict[str, Any]


class Choice(NamedTuple):
    """The options, what they are (`label`), and the index of the one shown first."""

    label: str
    options: list[Option]
    first: int = 0

    def without(self, names: Collection[str]) -> Choice:
        """Return the choice without the parts of these names, and without parts that are None."""
        options = [
            Option(
                option.name,
                {k: v for k, v in option.parts.items() if v is not None and k not in names},
            )
            for option in self.options
        ]
        return self._replace(options=options)
